package clusters

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/controllers/timeline"
	"github.com/drover-dev/drover/hub/plan/rollout"
	"github.com/drover-dev/drover/hub/testenv"
	"github.com/drover-dev/drover/hub/util/timelines"
	"github.com/drover-dev/drover/plans"
)

// leak is the output of a failing program; no Event and no ConfigMap may contain it.
const leak = "hunter2"

func timelineOf(r *testenv.FakeCluster) (*timelines.Record, *corev1.ConfigMap, error) {
	configMap := &corev1.ConfigMap{}
	key := client.ObjectKey{Namespace: r.Cluster.Namespace, Name: rkev1.TimelinePartName(r.Cluster.Name, 0)}
	if err := env.Client.Get(r.T.Context(), key, configMap); err != nil {
		return nil, nil, err
	}
	collector := timelines.NewCollector(client.ObjectKeyFromObject(r.Cluster))
	err := collector.Read(r.T.Context(), env.Client)
	return collector.Record(), configMap, err
}

// awaitPhase waits until a subject is in a phase, and returns names and outcomes of all its phases.
func awaitPhase(r *testenv.FakeCluster, kind, name, phase string) []string {
	r.T.Helper()
	var got []string
	r.Wait(fmt.Sprintf("%s %s to be in phase %s", kind, name, phase), func() (err error) {
		if got, err = phasesOf(r, kind, name); err != nil {
			return err
		}
		if len(got) == 0 || !strings.HasPrefix(got[len(got)-1], phase+" ") {
			return fmt.Errorf("it went through %v", got)
		}
		return nil
	})
	return got
}

// phasesOf returns names and outcomes of the phases of a subject so far.
func phasesOf(r *testenv.FakeCluster, kind, name string) (phases []string, err error) {
	r.T.Helper()
	record, _, err := timelineOf(r)
	if err != nil {
		return nil, err
	}
	for _, s := range record.Subjects {
		for _, p := range s.Phases {
			if s.Kind == kind && s.Name == name {
				phases = append(phases, p.Name+" "+string(p.Outcome))
			}
		}
	}
	return phases, nil
}

// hubEvents are the Events of a cluster that the hub has written; Cluster API has Events of its own.
func hubEvents(r *testenv.FakeCluster) []corev1.Event {
	r.T.Helper()
	var events corev1.EventList
	if err := env.Client.List(r.T.Context(), &events, client.InNamespace(r.Cluster.Namespace)); err != nil {
		r.T.Fatal(err)
	}
	return slices.DeleteFunc(events.Items, func(e corev1.Event) bool { return e.Source.Component != "drover-hub" })
}

// eventsOf lists "kind: type reason" of a cluster's Events, and all of them as text.
func eventsOf(r *testenv.FakeCluster) (list []string, text string) {
	r.T.Helper()
	events := hubEvents(r)
	for _, e := range events {
		list = append(list, fmt.Sprintf("%s: %s %s", e.InvolvedObject.Kind, e.Type, e.Reason))
	}
	raw, err := json.Marshal(events)
	if err != nil {
		r.T.Fatal(err)
	}
	return list, string(raw)
}

func logOf(r *testenv.FakeCluster) string {
	r.T.Helper()
	configMap := &corev1.ConfigMap{}
	key := client.ObjectKey{Namespace: r.Cluster.Annotations[rkev1.ManagementClusterNameAnnotation], Name: timeline.LogName}
	if err := env.Client.Get(r.T.Context(), key, configMap); client.IgnoreNotFound(err) != nil {
		r.T.Fatal(err)
	}
	return configMap.Data[timeline.LogKey]
}

// TestTimeline provisions a machine whose plan fails once.
func TestTimeline(t *testing.T) {
	t.Parallel()
	r := env.NewCluster(t, "tale", nil)
	awaitPhase(r, timelines.KindCluster, "tale", rollout.ReasonWaitingForMachines)
	m := r.Register("one", "127.0.0.2", "etcd", "control-plane", "worker")
	m.AwaitPlan("")
	awaitPhase(r, timelines.KindMachine, m.Name, rollout.ReasonWaitingForAgent)
	m.Take()
	awaitPhase(r, timelines.KindMachine, m.Name, rollout.ReasonApplyingPlan)
	awaitPhase(r, timelines.KindCluster, "tale", rollout.ReasonApplyingPlan)
	// The log names the machine that has failed, so that the machine must not be done before.
	m.FailUntil("the failure and the log", func() error {
		phases, err := phasesOf(r, timelines.KindMachine, m.Name)
		failed := func(phase string) bool { return strings.HasPrefix(phase, rollout.ReasonPlanFailed+" ") }
		if err != nil || !slices.ContainsFunc(phases, failed) {
			return fmt.Errorf("the machine went through %v (%w)", phases, err)
		}
		log := logOf(r)
		for _, want := range []string{"[INFO ] Waiting for machines to be registered", "[ERROR] Applying the plan failed on " + m.Name} {
			if !strings.Contains(log, want) {
				return fmt.Errorf("no %q in\n%s", want, log)
			}
		}
		return nil
	}, func(s *plans.Status) {
		s.FailedOutput = map[string][]byte{"install": []byte("the password is " + leak)}
	})
	m.Succeed()
	phases := awaitPhase(r, timelines.KindMachine, m.Name, "WaitingForNode")
	for _, want := range []string{"WaitingForAgent done", "ApplyingPlan failed", "PlanFailed failed", "WaitingForNode running"} {
		if !slices.Contains(phases, want) {
			t.Errorf("the machine went through %v, without %q", phases, want)
		}
	}

	wantEvents := []string{
		"Machine: Normal WaitingForAgent", "Machine: Normal ApplyingPlan", "Machine: Warning PlanFailed", "Machine: Normal UpToDate",
		"RKEControlPlane: Normal KubeconfigReady",
		"Cluster: Normal Created", "Cluster: Normal ApplyingPlan", "Cluster: Warning PlanFailed", "Cluster: Normal UpToDate",
		"Cluster: Normal Bootstrapped",
	}
	var events []string
	var text string
	r.Wait("the Events", func() error {
		events, text = eventsOf(r)
		for _, want := range wantEvents {
			if !slices.Contains(events, want) {
				return fmt.Errorf("no %q in\n%s", want, strings.Join(events, "\n"))
			}
		}
		return nil
	})
	_, configMap, err := timelineOf(r)
	if err != nil {
		t.Fatal(err)
	}
	for name, where := range map[string]string{"an Event": text, "the timeline": configMap.Data[timelines.DataKey], "the log": logOf(r)} {
		if strings.Contains(where, leak) {
			t.Errorf("%s contains output of a program:\n%s", name, where)
		}
	}
	checkRestart(r)
	checkRemoval(r)
}

// checkRestart checks that a restarted hub repeats no Event, and writes nothing if nothing has changed. The hub of the other tests may have
// something to write meanwhile; then it is restarted once more.
func checkRestart(r *testenv.FakeCluster) {
	r.T.Helper()
	r.Wait("a restarted hub to have nothing to write", func() error {
		_, configMap, err := timelineOf(r)
		if err != nil {
			return err
		}
		events := hubEvents(r)
		log := logOf(r)
		time.Sleep(2 * time.Second)
		again := &timeline.Reconciler{Client: env.Client, Live: env.Client, Now: time.Now}
		for range 2 {
			if _, err := again.Reconcile(r.T.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(r.Cluster)}); err != nil {
				return err
			}
		}
		if diff := cmp.Diff(events, hubEvents(r)); diff != "" {
			return fmt.Errorf("Events were written again:\n%s", diff)
		}
		if logOf(r) != log {
			return fmt.Errorf("the log was written again:\n%s", logOf(r))
		}
		_, now, err := timelineOf(r)
		if err == nil && now.ResourceVersion != configMap.ResourceVersion {
			err = fmt.Errorf("the timeline was written again")
		}
		return err
	})
}

// checkRemoval checks that the timeline is deleted with its cluster.
func checkRemoval(r *testenv.FakeCluster) {
	r.T.Helper()
	env.Delete(r.T, r.Cluster)
	env.Gone(r.T, r.Cluster)
	// It may be written in the very moment in which the Cluster goes; the garbage collector takes it, as it belongs to the Cluster.
	env.Gone(r.T, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: r.Cluster.Namespace,
		Name: rkev1.TimelinePartName(r.Cluster.Name, 0)}})
}

// TestTimelineOfPlainCluster: a cluster of plain Cluster API objects has a timeline, one with another control plane provider has none.
func TestTimelineOfPlainCluster(t *testing.T) {
	t.Parallel()
	namespace := env.Namespace(t)
	for name, kind := range map[string]string{"ours": "RKEControlPlane", "theirs": "KubeadmControlPlane"} {
		group := rkev1.GroupVersion.Group
		if kind != "RKEControlPlane" {
			group = "controlplane.cluster.x-k8s.io"
		}
		cluster := &clusterv1.Cluster{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
			Spec: clusterv1.ClusterSpec{
				ControlPlaneRef:   clusterv1.ContractVersionedObjectReference{APIGroup: group, Kind: kind, Name: name},
				InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: rkev1.GroupVersion.Group, Kind: "RKECluster", Name: name},
			},
		}
		if err := env.Client.Create(t.Context(), cluster); err != nil {
			t.Fatal(err)
		}
	}
	r := &testenv.FakeCluster{T: t, Env: env}
	ours := client.ObjectKey{Namespace: namespace, Name: rkev1.TimelinePartName("ours", 0)}
	configMap := &corev1.ConfigMap{}
	r.Wait("the timeline", func() error { return env.Client.Get(t.Context(), ours, configMap) })
	if len(configMap.OwnerReferences) != 1 || configMap.OwnerReferences[0].APIVersion != clusterv1.GroupVersion.String() {
		t.Errorf("it belongs to %+v", configMap.OwnerReferences)
	}
	theirs := client.ObjectKey{Namespace: namespace, Name: rkev1.TimelinePartName("theirs", 0)}
	if err := env.Client.Get(t.Context(), theirs, configMap); !apierrors.IsNotFound(err) {
		t.Errorf("a cluster of another provider has a timeline (%v)", err)
	}
}
