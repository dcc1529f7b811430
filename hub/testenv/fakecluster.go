package testenv

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sigs.k8s.io/cluster-api/util/conditions"

	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/plans"
)

// FakeCluster is a Cluster whose machines and agents are played by the test, and nothing else.
type FakeCluster struct {
	T       *testing.T
	Env     *Env
	Cluster *provisioningv1.Cluster

	machines []*FakeMachine
}

// NewCluster creates a Cluster of custom machines in a namespace of its own, and waits until machines can register. config is its
// machineGlobalConfig; more change the rest of its specification.
func (e *Env) NewCluster(t *testing.T, name string, config map[string]any, more ...func(*provisioningv1.RKEConfig)) *FakeCluster {
	t.Helper()
	r := &FakeCluster{T: t, Env: e, Cluster: &provisioningv1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace(t), Name: name},
		Spec:       provisioningv1.ClusterSpec{KubernetesVersion: "v1.36.3+k3s1", RKEConfig: &provisioningv1.RKEConfig{}},
	}}
	r.Cluster.Spec.RKEConfig.MachineGlobalConfig.Data = config
	for _, change := range more {
		change(r.Cluster.Spec.RKEConfig)
	}
	t.Cleanup(r.logFailure)
	if err := e.Client.Create(t.Context(), r.Cluster); err != nil {
		t.Fatalf("creating the Cluster: %v", err)
	}
	r.Wait("the management namespace", func() error {
		r.Read(r.Cluster.Name, r.Cluster)
		management := r.Cluster.Annotations[rkev1.ManagementClusterNameAnnotation]
		return r.Env.Client.Get(t.Context(), client.ObjectKey{Name: management}, &corev1.Namespace{})
	})
	return r
}

// Wait waits for something of the test's own or of the hub.
func (r *FakeCluster) Wait(what string, check func() error) {
	r.T.Helper()
	Until(r.T, what, check)
}

// Read reads an object of the cluster's namespace.
func (r *FakeCluster) Read(name string, into client.Object) {
	r.T.Helper()
	if err := r.Env.Client.Get(r.T.Context(), client.ObjectKey{Namespace: r.Cluster.Namespace, Name: name}, into); err != nil {
		r.T.Fatalf("reading %T %s: %v", into, name, err)
	}
}

// AwaitCondition waits until a condition has a status, a reason and a message.
func (r *FakeCluster) AwaitCondition(object interface {
	client.Object
	conditions.Getter
}, conditionType string, status metav1.ConditionStatus, reason, message string) {
	r.T.Helper()
	r.Wait(fmt.Sprintf("%T to say %s %s %s %q", object, conditionType, status, reason, message), func() error {
		if err := r.Env.Client.Get(r.T.Context(), client.ObjectKeyFromObject(object), object); err != nil {
			return err
		}
		c := conditions.Get(object, conditionType)
		if c == nil || c.Status != status || c.Reason != reason || c.Message != message {
			return fmt.Errorf("it says %+v", c)
		}
		return nil
	})
}

// ControlPlane is the name of the RKEControlPlane, to be read.
func (r *FakeCluster) ControlPlane() *rkev1.RKEControlPlane {
	return &rkev1.RKEControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: r.Cluster.Namespace, Name: r.Cluster.Name}}
}

// FakeMachine is a machine whose agent the test plays.
type FakeMachine struct {
	*FakeCluster
	// Name of its Machine and RKEBootstrap.
	Name string

	// applied is the plan that was reported last.
	applied []byte
}

// Register registers a machine as the gateway does, and waits until its plan Secret is there.
func (r *FakeCluster) Register(id, address string, roles ...string) *FakeMachine {
	r.T.Helper()
	headers := map[string][]string{rkev1.HeaderID: {id}, rkev1.HeaderDetectedAddress: {address}}
	for _, role := range roles {
		headers["role-"+role] = []string{"true"}
	}
	data, err := json.Marshal(headers)
	if err != nil {
		r.T.Fatal(err)
	}
	name := rkev1.MachineRequestName(id)
	request := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: r.Cluster.Annotations[rkev1.ManagementClusterNameAnnotation], Name: name},
		Type:       rkev1.MachineRequestSecretType,
		Data:       map[string][]byte{rkev1.MachineRequestDataKey: data},
	}
	if err := r.Env.Client.Create(r.T.Context(), request); err != nil {
		r.T.Fatalf("creating the machine request: %v", err)
	}
	m := &FakeMachine{FakeCluster: r, Name: name}
	r.machines = append(r.machines, m)
	r.Wait("the plan Secret of "+id, func() error {
		key := client.ObjectKey{Namespace: r.Cluster.Namespace, Name: rkev1.PlanSecretName(name)}
		return r.Env.Client.Get(r.T.Context(), key, &corev1.Secret{})
	})
	return m
}

// Secret reads the plan Secret.
func (m *FakeMachine) Secret() *corev1.Secret {
	m.T.Helper()
	secret := &corev1.Secret{}
	m.Read(rkev1.PlanSecretName(m.Name), secret)
	return secret
}

// AwaitPlan waits until a pending plan is delivered that differs from the last one, and returns it.
func (m *FakeMachine) AwaitPlan(last string) (plan plans.Plan, checksum string) {
	m.T.Helper()
	m.Wait("a plan for "+m.Name, func() error {
		secret := m.Secret()
		raw := secret.Data[plans.KeyPlan]
		checksum = plans.Checksum(raw)
		if len(raw) == 0 || checksum == last || string(secret.Data[plans.KeyPlanState]) != string(plans.StatePending) {
			return fmt.Errorf("plan of %d bytes, state %q", len(raw), secret.Data[plans.KeyPlanState])
		}
		var err error
		plan, err = plans.Decode(raw)
		return err
	})
	return plan, checksum
}

// Report writes into the plan Secret as an agent does.
func (m *FakeMachine) Report(set func(*plans.Status, plans.Plan)) {
	m.T.Helper()
	m.report("", func(s *plans.Status, plan plans.Plan, _ []byte) { set(s, plan) })
}

// report writes into the plan Secret, if its plan is that of a checksum; empty for any plan. set is given the plan, encoded too.
func (m *FakeMachine) report(checksum string, set func(s *plans.Status, plan plans.Plan, raw []byte)) {
	m.T.Helper()
	OnConflict(m.T, "reporting for "+m.Name, func() error {
		secret := m.Secret()
		raw := secret.Data[plans.KeyPlan]
		if checksum != "" && plans.Checksum(raw) != checksum {
			return nil
		}
		status, err := plans.DecodeStatus(secret.Data)
		if err != nil {
			return err
		}
		plan, err := plans.Decode(raw)
		if err != nil {
			return err
		}
		set(&status, plan, raw)
		if err := status.WriteTo(secret.Data); err != nil {
			return err
		}
		return m.Env.Client.Update(m.T.Context(), secret)
	})
}

// Take reports that the agent is at the plan.
func (m *FakeMachine) Take() {
	m.T.Helper()
	m.take("")
}

func (m *FakeMachine) take(checksum string) {
	m.T.Helper()
	m.report(checksum, func(s *plans.Status, _ plans.Plan, _ []byte) {
		s.State, s.Revision = plans.StateInProgress, s.Revision+1
	})
}

// Succeed reports the plan as applied, and all probes healthy but those named.
func (m *FakeMachine) Succeed(unhealthy ...string) {
	m.T.Helper()
	m.succeed("", unhealthy...)
}

func (m *FakeMachine) succeed(checksum string, unhealthy ...string) {
	m.T.Helper()
	m.report(checksum, func(s *plans.Status, plan plans.Plan, raw []byte) {
		m.applied = raw
		s.State, s.AppliedChecksum, s.FailedChecksum = plans.StateSucceeded, plans.Checksum(raw), ""
		s.FailureCount, s.SuccessCount = 0, s.SuccessCount+1
		s.ProbeStatuses = map[string]plans.ProbeStatus{}
		for name := range plan.Probes {
			s.ProbeStatuses[name] = plans.ProbeStatus{Healthy: !slices.Contains(unhealthy, name)}
		}
	})
}

// Apply is Take and Succeed for the plan of a checksum. A plan that has come since is left for the test to see.
func (m *FakeMachine) Apply(checksum string) {
	m.T.Helper()
	m.take(checksum)
	m.succeed(checksum)
}

// Fail reports that the plan has failed, and what more sets.
func (m *FakeMachine) Fail(more ...func(*plans.Status)) {
	m.T.Helper()
	m.report("", func(s *plans.Status, _ plans.Plan, raw []byte) {
		s.State, s.FailedChecksum, s.FailureCount = plans.StateFailed, plans.Checksum(raw), s.FailureCount+1
		for _, set := range more {
			set(s)
		}
	})
}

// FailUntil is Fail until check returns nil. The hub sets a failed plan pending after 15 seconds, and nobody shows the failure any more; a
// hub that is slow may not have shown it by then. The next attempt fails, too, and its failure is there for twice as long.
func (m *FakeMachine) FailUntil(what string, check func() error, more ...func(*plans.Status)) {
	m.T.Helper()
	m.Wait(what, func() error {
		if state := plans.State(m.Secret().Data[plans.KeyPlanState]); state != plans.StateFailed {
			m.Fail(more...)
		}
		return check()
	})
}

// logFailure logs what a test that failed may have waited for: what the control plane says, and the plans that no agent was told to apply.
func (r *FakeCluster) logFailure() {
	if !r.T.Failed() {
		return
	}
	ctx, plane := context.Background(), r.ControlPlane()
	if err := r.Env.Client.Get(ctx, client.ObjectKeyFromObject(plane), plane); err != nil {
		r.T.Log(err)
	}
	for _, c := range plane.Status.Conditions {
		r.T.Logf("RKEControlPlane %s: %s=%s %s %s", plane.Name, c.Type, c.Status, c.Reason, c.Message)
	}
	for _, m := range r.machines {
		secret, key := &corev1.Secret{}, client.ObjectKey{Namespace: r.Cluster.Namespace, Name: rkev1.PlanSecretName(m.Name)}
		if err := r.Env.Client.Get(ctx, key, secret); err != nil {
			r.T.Log(err)
			continue
		}
		before, _ := plans.Decode(m.applied)
		now, _ := plans.Decode(secret.Data[plans.KeyPlan])
		r.T.Logf("%s: the plan is %q; its difference from the one applied last (-applied +delivered):\n%s", m.Name,
			secret.Data[plans.KeyPlanState], cmp.Diff(before, now))
	}
}
