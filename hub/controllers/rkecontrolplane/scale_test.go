package rkecontrolplane

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/util/patch"
	"github.com/drover-dev/drover/plans"
)

// fleetServer takes the writes of a reconcile, shows them to the next one by the shelf, and counts the requests.
type fleetServer struct {
	client.Client
	*shelf
	controlPlane *rkev1.RKEControlPlane
	// mu is held by each request: machines are written some at a time.
	mu sync.Mutex
	// requests counts by kind what was written, and what was read past the cache.
	requests map[string]int
	version  int
}

func (a *fleetServer) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.requests["read"]++
	return a.shelf.List(ctx, list, opts...)
}

// Get reads Machines.
func (a *fleetServer) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range a.machines.Items {
		if into, ok := object.(*clusterv1.Machine); ok && a.machines.Items[i].Name == key.Name {
			a.machines.Items[i].DeepCopyInto(into)
			return nil
		}
	}
	return fmt.Errorf("there is no %T %s", object, key.Name)
}

// Update takes plan Secrets.
func (a *fleetServer) Update(_ context.Context, object client.Object, _ ...client.UpdateOption) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.requests["plan"]++
	for i := range a.secrets.Items {
		if a.secrets.Items[i].Name == object.GetName() {
			a.secrets.Items[i] = *object.(*corev1.Secret).DeepCopy()
			return nil
		}
	}
	return fmt.Errorf("there is no Secret %s", object.GetName())
}

func (a *fleetServer) Status() client.SubResourceWriter { return &statusWriter{api: a} }

// statusWriter takes merge patches of the status, and JSON patches of conditions.
type statusWriter struct {
	client.SubResourceWriter
	api *fleetServer
}

func (w *statusWriter) Patch(_ context.Context, into client.Object, p client.Patch, _ ...client.SubResourcePatchOption) error {
	raw, err := p.Data(into)
	if err != nil {
		return err
	}
	a := w.api
	a.mu.Lock()
	defer a.mu.Unlock()
	switch into := into.(type) {
	case *clusterv1.Machine:
		a.requests["machine"]++
		for i := range a.machines.Items {
			if a.machines.Items[i].Name == into.Name {
				return write(a, &a.machines.Items[i], into, p.Type(), raw)
			}
		}
	case *rkev1.RKEControlPlane:
		a.requests["cluster"]++
		return write(a, a.controlPlane, into, p.Type(), raw)
	}
	return fmt.Errorf("there is no %T %s", into, into.GetName())
}

// statusObject is a kind of which reconciles write the status.
type statusObject[T any] interface {
	patch.Object
	DeepCopyInto(T)
}

// write makes the changes of a patch in what is stored, and returns it.
func write[T statusObject[T]](a *fleetServer, held, into T, kind types.PatchType, raw []byte) error {
	var err error
	if kind == types.JSONPatchType {
		err = replaceConditions(held, raw)
	} else {
		err = merge(held, raw)
	}
	if err != nil {
		return err
	}
	a.version++
	held.SetResourceVersion(strconv.Itoa(a.version))
	held.DeepCopyInto(into)
	return nil
}

func merge(held patch.Object, raw []byte) error {
	var body struct {
		Status struct{ Conditions json.RawMessage }
	}
	if err := json.Unmarshal(raw, &body); err != nil {
		return err
	}
	if body.Status.Conditions != nil {
		held.SetConditions(nil)
	}
	return json.Unmarshal(raw, held)
}

func replaceConditions(held patch.Object, raw []byte) error {
	var operations []struct {
		Op, Path string
		Value    json.RawMessage
	}
	if err := json.Unmarshal(raw, &operations); err != nil {
		return err
	}
	for _, o := range operations {
		if o.Op != "replace" {
			continue
		}
		var condition metav1.Condition
		if err := json.Unmarshal(o.Value, &condition); err != nil {
			return err
		}
		i, err := strconv.Atoi(strings.TrimPrefix(o.Path, "/status/conditions/"))
		if err != nil || i >= len(held.GetConditions()) || held.GetConditions()[i].Type != condition.Type {
			return fmt.Errorf("%s is not the condition %s", o.Path, condition.Type)
		}
		held.GetConditions()[i] = condition
	}
	return nil
}

// runAgents lets every agent make a step with its plan, one faster than the other.
func (a *fleetServer) runAgents(tb testing.TB, step int) {
	tb.Helper()
	for i := range a.secrets.Items {
		secret := &a.secrets.Items[i]
		status, err := plans.DecodeStatus(secret.Data)
		if err != nil {
			tb.Fatal(err)
		}
		if status.AppliedChecksum == plans.Checksum(secret.Data[plans.KeyPlan]) {
			continue
		}
		data := maps.Clone(secret.Data)
		switch {
		case status.State == plans.StatePending:
			status.State = plans.StateInProgress
		case (i+step)%3 == 0:
			status.State, status.AppliedChecksum = plans.StateSucceeded, plans.Checksum(data[plans.KeyPlan])
			status.Revision++
			plan, err := plans.Decode(data[plans.KeyPlan])
			if err != nil {
				tb.Fatal(err)
			}
			status.ProbeStatuses = map[string]plans.ProbeStatus{}
			for probe := range plan.Probes {
				status.ProbeStatuses[probe] = plans.ProbeStatus{Healthy: true}
			}
			data[plans.KeyAppliedPlan] = data[plans.KeyPlan]
		}
		if err := status.WriteTo(data); err != nil {
			tb.Fatal(err)
		}
		secret.Data = data
	}
}

// reconcile is what a reconcile does of which the cost grows with the machines: it decides, delivers, and reports.
func (r *Reconciler) reconcile(a *fleetServer, s *scope) error {
	ctx := context.Background()
	s.controlPlane = a.controlPlane.DeepCopy()
	helper := patch.NewHelper(a, s.controlPlane, fieldOwner, ownedConditions...)
	for _, run := range []phase{r.loadMachines, r.plan, r.deliver, r.updateMachines} {
		if err := run(ctx, s); err != nil {
			return err
		}
	}
	setStatus(s, nil)
	return helper.Patch(ctx, s.controlPlane)
}

// changeAll changes the configuration of a cluster at rest, concurrency workers at a time, and returns the requests until all machines have
// it.
func changeAll(tb testing.TB, machines, concurrency int) map[string]int {
	tb.Helper()
	r, in, next := bigCluster(tb, machines)
	a := &fleetServer{shelf: in, controlPlane: next().controlPlane, requests: map[string]int{}}
	r.Client, r.Live = a, a
	a.controlPlane.Spec.UpgradeStrategy.WorkerConcurrency = rkev1.Concurrency(strconv.Itoa(concurrency))
	run := func() bool {
		s := next()
		if err := r.reconcile(a, s); err != nil {
			tb.Fatal(err)
		}
		return s.outcome.Done
	}
	if !run() {
		tb.Fatal("the cluster is not at rest")
	}
	clear(a.requests)
	if run(); len(a.requests) > 0 {
		tb.Fatalf("a cluster at rest makes requests: %v", a.requests)
	}
	a.controlPlane.Generation++
	a.controlPlane.Spec.MachineGlobalConfig.Data = map[string]any{"kubelet-arg": []any{"max-pods=200"}}
	for step := 0; !run(); step++ {
		a.runAgents(tb, step)
		if step > 10*machines {
			tb.Fatalf("not done after %d steps: %s", step, conditions.GetMessage(a.controlPlane, rkev1.ReadyCondition))
		}
	}
	return a.requests
}

// checkRequests wants a fixed number of requests for each machine, however many others there are.
func checkRequests(tb testing.TB, machines int, requests map[string]int) {
	tb.Helper()
	for kind, most := range map[string]int{
		// A machine waits for its turn and for others, gets its plan, which the agent takes and applies, and is up to date again.
		"machine": 6 * machines,
		"cluster": 4 * machines,
		"plan":    machines,
		// Before each change of etcd the four kinds of objects are read again.
		"read": 3 * 4,
	} {
		if requests[kind] > most || requests[kind] == 0 {
			tb.Errorf("%d machines: %d requests for %s, want at most %d", machines, requests[kind], kind, most)
		}
	}
}

func TestRequestsGrowLinearly(t *testing.T) {
	for _, machines := range []int{20, 60} {
		checkRequests(t, machines, changeAll(t, machines, 4))
	}
}

// BenchmarkRequests counts the requests of a whole rollout.
func BenchmarkRequests(b *testing.B) {
	for _, machines := range []int{100, 300, 1000} {
		b.Run(fmt.Sprint(machines), func(b *testing.B) {
			var requests map[string]int
			for b.Loop() {
				requests = changeAll(b, machines, 20)
			}
			checkRequests(b, machines, requests)
			for _, kind := range []string{"machine", "cluster", "plan"} {
				b.ReportMetric(float64(requests[kind])/float64(machines), kind+"-writes/machine")
			}
			b.ReportMetric(float64(requests["read"]), "reads-past-cache")
		})
	}
}
