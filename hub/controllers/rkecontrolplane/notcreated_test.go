package rkecontrolplane

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/plan/rollout"
)

func failingPool(name string, status corev1.ConditionStatus, reason, text string) clusterv1.MachineDeployment {
	d := pool("", 3)
	d.Name = name
	d.SetV1Beta1Conditions([]clusterv1.Condition{{ //nolint:staticcheck // no condition of the present contract says why
		Type: clusterv1.MachineSetReadyV1Beta1Condition, Status: status, Reason: reason, Message: text,
	}})
	return d
}

// TestNotCreated: of a pool whose machines Cluster API cannot create, the cluster says why, before its first machine and later.
func TestNotCreated(t *testing.T) {
	gone := failingPool("gone", corev1.ConditionFalse, clusterv1.MachineCreationFailedV1Beta1Reason, "quota")
	gone.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	failures := notCreated([]clusterv1.MachineDeployment{
		failingPool("workers", corev1.ConditionFalse, clusterv1.InfrastructureTemplateCloningFailedV1Beta1Reason, "webhook: no such flavor"),
		failingPool("servers", corev1.ConditionFalse, clusterv1.PreflightCheckFailedV1Beta1Reason, "not now"),
		failingPool("scales", corev1.ConditionFalse, clusterv1.ScalingUpV1Beta1Reason, "Scaling up"),
		failingPool("good", corev1.ConditionTrue, "", ""), pool("", 1), gone,
	})
	want := []string{"creating Machines of servers failed: not now", "creating Machines of workers failed: webhook: no such flavor"}
	if diff := cmp.Diff(want, failures); diff != "" {
		t.Fatalf("-want +got:\n%s", diff)
	}
	const why = "; creating Machines of workers failed: webhook: no such flavor"
	for name, tc := range map[string]struct {
		outcome rollout.Outcome
		missing []string
		want    string
	}{
		"no machine": {rollout.Outcome{Wait: rollout.Wait{Reason: rollout.ReasonWaitingForMachines, Message: "none has the role worker"}},
			nil, "Unknown WaitingForMachines none has the role worker" + why},
		"one of three": {rollout.Outcome{Done: true}, []string{"workers has 1 of 3"},
			"Unknown WaitingForMachines Waiting for Machines to be created: workers has 1 of 3" + why},
		"others are changed": {rollout.Outcome{Wait: rollout.Wait{Reason: rollout.ReasonWaitingForProbes, Message: "kubelet"}},
			[]string{"workers has 1 of 3"}, "Unknown WaitingForProbes kubelet"},
	} {
		s := &scope{controlPlane: &rkev1.RKEControlPlane{}, outcome: &tc.outcome, missing: tc.missing, notCreated: failures[1:]}
		setPhases(s, nil)
		if got := summary(s)["Ready"]; got != tc.want {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
		}
	}
}

// TestIdleDeployments: a cluster that waits for its first worker names the MachineDeployments that ask for no machine.
func TestIdleDeployments(t *testing.T) {
	deployment := func(name string, replicas int32) clusterv1.MachineDeployment {
		d := pool("", replicas)
		d.Name = name
		return d
	}
	gone := deployment("gone", 0)
	gone.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	deployments := []clusterv1.MachineDeployment{deployment("workers", 0), deployment("servers", 1), gone, deployment("builders", 0)}
	for name, tc := range map[string]struct{ wait, want rollout.Wait }{
		"no worker": {rollout.Wait{Reason: rollout.ReasonWaitingForMachines, Message: "none has the role worker"},
			rollout.Wait{Reason: rollout.ReasonWaitingForMachines,
				Message: "none has the role worker; MachineDeployments with 0 replicas: builders, workers"}},
		"another wait": {rollout.Wait{Reason: rollout.ReasonWaitingForProbes, Message: "kubelet"},
			rollout.Wait{Reason: rollout.ReasonWaitingForProbes, Message: "kubelet"}},
	} {
		s := &scope{controlPlane: &rkev1.RKEControlPlane{}, outcome: &rollout.Outcome{Wait: tc.wait}, deployments: deployments}
		setPhases(s, nil)
		if got, want := summary(s)["Ready"], "Unknown "+tc.want.Reason+" "+tc.want.Message; got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
}

func TestDeploymentChanged(t *testing.T) {
	before := failingPool("workers", corev1.ConditionFalse, clusterv1.ScalingUpV1Beta1Reason, "Scaling up")
	changed := func(after clusterv1.MachineDeployment) bool {
		return deploymentChanged.Update(event.UpdateEvent{ObjectOld: &before, ObjectNew: &after})
	}
	if changed(failingPool("workers", corev1.ConditionFalse, clusterv1.ScalingUpV1Beta1Reason, "Scaling up further")) {
		t.Error("progress causes a reconcile")
	}
	if !changed(failingPool("workers", corev1.ConditionFalse, clusterv1.MachineCreationFailedV1Beta1Reason, "quota")) {
		t.Error("a failure causes none")
	}
	attempt := func(name string) clusterv1.MachineDeployment {
		return failingPool("workers", corev1.ConditionFalse, clusterv1.MachineCreationFailedV1Beta1Reason, `machines "`+name+`" is forbidden`)
	}
	before = attempt("workers-x7k2p-9d4tz")
	if changed(attempt("workers-x7k2p-bbk4c")) {
		t.Error("a retry of the same Machine under another name causes a reconcile")
	}
	after := *before.DeepCopy()
	if after.Generation++; !changed(after) {
		t.Error("another specification causes none")
	}
}

// TestGeneratedName: the name that Cluster API makes up for each attempt is not part of a message, whatever the names of a pool look like.
func TestGeneratedName(t *testing.T) {
	long := strings.Repeat("a", 55)
	for name, tc := range map[string]struct{ deployment, naming, first, second string }{
		"as a rule":        {"one-workers", "", "one-workers-x7k2p-9d4tz", "one-workers-x7k2p-bbk4c"},
		"a limit":          {"one-workers", "one-work-{{ .random }}", "one-work-9d4tz", "one-work-bbk4c"},
		"a user's":         {"md", "{{ .machineSet.name }}-x-{{ .random }}", "md-x7k2p-x-9d4tz", "md-x7k2p-x-bbk4c"},
		"a long name":      {long, "", long + "-x79d4tz", long + "-x7bbk4c"},
		"the longest name": {long + "-abcdefg", "", long + "-ab9d4tz", long + "-abbbk4c"},
	} {
		failure := func(machine string) string {
			d := failingPool(tc.deployment, corev1.ConditionFalse, clusterv1.MachineCreationFailedV1Beta1Reason,
				`cloning "one-workers-0a1b2c3d": machines "`+machine+`" is forbidden`)
			d.Spec.MachineNaming.Template = tc.naming
			return creationFailure(&d)
		}
		want := `cloning "one-workers-0a1b2c3d": machines "` + tc.deployment + `-..." is forbidden`
		if first, second := failure(tc.first), failure(tc.second); first != want || second != want {
			t.Errorf("%s: got %q and %q", name, first, second)
		}
	}
}
