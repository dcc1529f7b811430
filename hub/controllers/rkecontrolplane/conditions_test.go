package rkecontrolplane

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/plan/reasons"
	"github.com/drover-dev/drover/hub/plan/render"
	"github.com/drover-dev/drover/hub/plan/rollout"
	"github.com/drover-dev/drover/hub/util/clustermachines"
	"github.com/drover-dev/drover/plans"
)

func server(name string, progress rollout.Progress, change rollout.Change, version string) *machine {
	m := &machine{
		machine:   &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Name: name}},
		bootstrap: &rkev1.RKEBootstrap{}, secret: &corev1.Secret{},
		inputs: render.Machine{Name: name, Etcd: true, ControlPlane: true},
		state: rollout.Machine{Name: name, Etcd: true, ControlPlane: true, Progress: progress, Change: change, JoinURL: "https://" + name,
			Version: version},
		report: rollout.Report{Progress: progress, Delivered: plans.Plan{Probes: map[string]plans.Probe{render.APIServerProbe: {}}}},
	}
	return m
}

func summary(s *scope) map[string]string {
	out := map[string]string{}
	for _, c := range s.controlPlane.Status.Conditions {
		out[c.Type] = string(c.Status) + " " + c.Reason + " " + c.Message
	}
	return out
}

func TestSetContract(t *testing.T) {
	a := server("a", rollout.ProgressApplied, rollout.ChangeNone, "v1.36.3+k3s1")
	b := server("b", rollout.ProgressApplied, rollout.ChangeRestart, "v1.36.2+k3s1")
	c := server("c", rollout.ProgressPending, rollout.ChangeNone, "")
	c.state.JoinURL = ""
	d := server("d", rollout.ProgressApplied, rollout.ChangeNone, "v1.36.2+k3s1")
	d.state.Deleting = true
	worker := &machine{machine: &clusterv1.Machine{}, inputs: render.Machine{Worker: true}}
	conditions.Set(a.machine, metav1.Condition{Type: clusterv1.ReadyCondition, Status: metav1.ConditionTrue, Reason: "Ready"})
	s := &scope{controlPlane: &rkev1.RKEControlPlane{}, loaded: true, machines: []*machine{a, b, c, d, worker}}
	d.machine.OwnerReferences = []metav1.OwnerReference{{Kind: "MachineSet", Controller: ptr.To(true)}}
	conditions.Set(d.machine, metav1.Condition{Type: clusterv1.MachineOwnerRemediatedCondition, Status: metav1.ConditionFalse,
		Reason: clusterv1.MachineOwnerRemediatedWaitingForRemediationReason})
	s.poolReplicas = controlPlaneReplicas([]clusterv1.MachineDeployment{pool(clusterv1.MachineControlPlaneLabel, 2),
		pool(rkev1.WorkerRoleLabel, 5)})
	setReplicas(s)
	setInitialized(s)
	setContractConditions(s)

	status := s.controlPlane.Status
	if got := []*int32{status.Replicas, status.ReadyReplicas, status.AvailableReplicas, status.UpToDateReplicas}; !slices.EqualFunc(got,
		[]int32{4, 1, 0, 1}, func(a *int32, b int32) bool { return *a == b }) {
		t.Errorf("replicas are %d %d %d %d", *got[0], *got[1], *got[2], *got[3])
	}
	if diff := cmp.Diff([]clusterv1.StatusVersion{{Version: "v1.36.2+k3s1", Replicas: 2}, {Version: "v1.36.3+k3s1", Replicas: 1}},
		status.Versions); diff != "" || status.Version != "v1.36.2+k3s1" {
		t.Errorf("version %s: %s", status.Version, diff)
	}
	if !ptr.Deref(status.Initialization.ControlPlaneInitialized, false) {
		t.Error("not initialized")
	}
	want := map[string]string{
		"Available":        "True Available ",
		"RollingOut":       "True RollingOut Changing 1 control plane node: b",
		"ScalingUp":        "True ScalingUp Adding 1 control plane node: c; 0 of 2 control plane Machines of MachineDeployments exist",
		"ScalingDown":      "True ScalingDown Removing 1 control plane node: d",
		"MachinesReady":    "False NotReady Not ready: b, c",
		"MachinesUpToDate": "False NotUpToDate Not up to date: b, c",
		"Remediating":      "True Remediating Remediating 1 control plane node: d",
	}
	if diff := cmp.Diff(want, summary(s)); diff != "" {
		t.Error(diff)
	}
}

// A control plane that nobody can reach any more, or whose Nodes are all down, is not said to be available for what was reported before.
func TestAvailable(t *testing.T) {
	a := server("a", rollout.ProgressApplied, rollout.ChangeNone, "")
	s := &scope{controlPlane: &rkev1.RKEControlPlane{}, loaded: true, machines: []*machine{a}}
	s.controlPlane.Status.Initialization.ControlPlaneInitialized = ptr.To(true)
	for _, tc := range []struct {
		node   rollout.NodeState
		silent time.Time
		want   string
	}{
		{want: "True Available "},
		{node: rollout.NodeReady, want: "True Available "},
		{node: rollout.NodeNotReady, want: "False NotAvailable No control plane node is known to serve the Kubernetes API"},
		{silent: time.Unix(0, 0), want: "Unknown ConnectionDown The cluster's API has not answered since 1970-01-01 00:00:00 UTC"},
	} {
		a.state.Node, s.unreachableSince = tc.node, tc.silent
		setContractConditions(s)
		if got := summary(s)["Available"]; got != tc.want {
			t.Errorf("Node %q, silent since %v: got %q, want %q", tc.node, tc.silent, got, tc.want)
		}
	}
}

// TestAvailableAfterDelivery: a change that restarts nothing does not take the API down. Each delivery takes back what was probed, so that
// nothing is known for some seconds, which is no reason to say that no server serves it.
func TestAvailableAfterDelivery(t *testing.T) {
	const yes, no = "True Available ", "False NotAvailable No control plane node is known to serve the Kubernetes API"
	type probes struct{ unknown, unhealthy []string }
	healthy, unknown := probes{}, probes{unknown: []string{render.APIServerProbe}}
	unhealthy := probes{unhealthy: []string{render.APIServerProbe}}
	const pending, applied = rollout.ProgressPending, rollout.ProgressApplied
	type step struct {
		progress rollout.Progress
		underway rollout.Change
		probes   probes
		node     rollout.NodeState
		want     string
		after    time.Duration
		deleting bool
	}
	up := step{progress: applied, probes: healthy, want: yes}
	with := func(s step, change func(*step)) step { change(&s); return s }
	minor := step{progress: pending, underway: rollout.ChangeMinor, probes: unknown, want: yes, after: time.Minute}
	not := with(minor, func(s *step) { s.want = no })
	for name, steps := range map[string][]step{
		"restarts nothing": {up, minor, {progress: applied, probes: unknown, want: yes, after: 2 * time.Minute}},
		"restarts": {up, with(not, func(s *step) { s.underway = rollout.ChangeRestart }),
			{progress: applied, probes: unknown, want: no}},
		"unhealthy":          {up, with(not, func(s *step) { s.probes = unhealthy })},
		"not served before":  {{progress: applied, probes: unhealthy, want: no}, not, {progress: applied, probes: unknown, want: no}},
		"its Node goes down": {up, with(not, func(s *step) { s.node = rollout.NodeNotReady })},
		"it has no Node":     {up, with(not, func(s *step) { s.node = rollout.NodeAbsent })},
		"it is deleted":      {up, with(not, func(s *step) { s.deleting = true })},
		"nobody probes it":   {up, minor, with(not, func(s *step) { s.after = probedWithin })},
	} {
		a, now := server("a", applied, rollout.ChangeNone, ""), time.Unix(1_800_000_000, 0)
		s := &scope{controlPlane: &rkev1.RKEControlPlane{}, loaded: true, machines: []*machine{a}}
		s.controlPlane.Status.Initialization.ControlPlaneInitialized = ptr.To(true)
		a.secret.Annotations = map[string]string{rkev1.PlanLastUpdatedAnnotation: now.UTC().Format(time.RFC3339)}
		for i, step := range steps {
			s.now, a.state.Deleting, s.requeueAfter = now.Add(step.after), step.deleting, 0
			a.state.Progress, a.state.Underway, a.state.Node = step.progress, step.underway, step.node
			a.report.HealthUnknown, a.report.Unhealthy = step.probes.unknown, step.probes.unhealthy
			setContractConditions(s)
			if got := summary(s)["Available"]; got != step.want {
				t.Errorf("%s, step %d: got %q, want %q", name, i, got, step.want)
			}
			if wait := probedWithin - step.after; step.want == yes && i > 0 && s.requeueAfter != wait {
				t.Errorf("%s, step %d: looked at again after %s, want %s", name, i, s.requeueAfter, wait)
			}
		}
	}
}

func pool(label string, replicas int32) clusterv1.MachineDeployment {
	d := clusterv1.MachineDeployment{Spec: clusterv1.MachineDeploymentSpec{Replicas: &replicas}}
	d.Spec.Template.Labels = map[string]string{label: ""}
	return d
}

func TestMissingMachines(t *testing.T) {
	var machines []clustermachines.Machine
	for _, name := range []string{"a", "a", "b", "c", "deleted"} {
		m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{clusterv1.MachineDeploymentNameLabel: name}}}
		if name == "deleted" {
			m.Labels[clusterv1.MachineDeploymentNameLabel], m.DeletionTimestamp = "b", &metav1.Time{Time: time.Unix(1, 0)}
		}
		machines = append(machines, clustermachines.Machine{Machine: m})
	}
	var deployments []clusterv1.MachineDeployment
	for name, replicas := range map[string]int32{"a": 1, "b": 2, "c": 1, "d": 3, "e": 4} {
		d := pool("", replicas)
		d.Name = name
		if name == "e" {
			d.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
		}
		deployments = append(deployments, d)
	}
	if got := missingMachines(deployments, machines); !slices.Equal(got, []string{"b has 1 of 2", "d has 0 of 3"}) {
		t.Errorf("missing are %v", got)
	}
}

func TestSetPhases(t *testing.T) {
	waiting := rollout.Wait{Reason: rollout.ReasonWaitingForProbes, Message: "Waiting for probes: kubelet"}
	tests := map[string]struct {
		scope scope
		err   error
		want  map[string]string
	}{
		"nothing known yet": {scope{}, nil, map[string]string{}},
		"version": {scope{wait: rollout.Wait{Reason: reasons.VersionInvalid, Message: "bad"}}, nil,
			map[string]string{"Ready": "False VersionInvalid bad", "Provisioned": "False VersionInvalid bad"}},
		"probes": {
			scope{outcome: &rollout.Outcome{Wait: waiting}, election: rollout.Election{Init: "a"}}, nil,
			map[string]string{"Ready": "Unknown WaitingForProbes Waiting for probes: kubelet", "Provisioned": "True Provisioned ",
				"Bootstrapped": "Unknown WaitingForProbes Waiting for probes: kubelet"},
		},
		"done": {
			scope{kubeconfigRead: true, outcome: &rollout.Outcome{Done: true}, election: rollout.Election{Init: "a"},
				machines: []*machine{withNode(server("a", rollout.ProgressApplied, rollout.ChangeNone, ""))}}, nil,
			map[string]string{"Ready": "True Ready ", "Provisioned": "True Provisioned ", "Bootstrapped": "True Bootstrapped ",
				"Stable": "True Stable ", "KubeconfigReady": "True KubeconfigReady "},
		},
		"more Machines are missing": {
			scope{kubeconfigRead: true, outcome: &rollout.Outcome{Done: true}, election: rollout.Election{Init: "a"},
				missing:  []string{"workers has 1 of 3"},
				machines: []*machine{withNode(server("a", rollout.ProgressApplied, rollout.ChangeNone, ""))}}, nil,
			map[string]string{"Ready": "Unknown WaitingForMachines Waiting for Machines to be created: workers has 1 of 3",
				"Stable":      "Unknown WaitingForMachines Waiting for Machines to be created: workers has 1 of 3",
				"Updated":     "Unknown WaitingForMachines Waiting for Machines to be created: workers has 1 of 3",
				"Provisioned": "True Provisioned ", "KubeconfigReady": "True KubeconfigReady "},
		},
		"no Node": {
			scope{kubeconfigRead: true, outcome: &rollout.Outcome{Done: true},
				machines: []*machine{server("a", rollout.ProgressApplied, rollout.ChangeNone, "")}}, nil,
			map[string]string{"Ready": "Unknown WaitingForNodes Waiting for the Node of a to appear in the cluster", "Stable": "True Stable "},
		},
		"no kubeconfig": {
			scope{kubeconfigRead: true, outcome: &rollout.Outcome{Done: true},
				kubeconfig: rollout.Wait{Reason: reasons.NoCertificateAuthority, Message: "none"}}, nil,
			map[string]string{"Ready": "False NoCertificateAuthority none", "Stable": "True Stable "},
		},
		"error": {
			scope{}, errTest{},
			map[string]string{"Ready": "False InternalError Reconciling failed, retrying: broken", "Reconciled": "False InternalError broken"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			tc.scope.controlPlane = &rkev1.RKEControlPlane{}
			setPhases(&tc.scope, tc.err)
			got := summary(&tc.scope)
			if len(tc.want) == 0 && len(got) > 0 {
				t.Errorf("got %v", got)
			}
			for conditionType, want := range tc.want {
				if diff := cmp.Diff(want, got[conditionType]); diff != "" {
					t.Errorf("%s: %s", conditionType, diff)
				}
			}
		})
	}
}

// TestConflictBeforeKubeconfig: a reconcile that a conflict ended before the kubeconfig was looked at says nothing new of it.
func TestConflictBeforeKubeconfig(t *testing.T) {
	waiting := rollout.Wait{Reason: reasons.WaitingForControlPlane, Message: "Waiting for the first control plane node"}
	for name, tc := range map[string]struct {
		before *rollout.Wait
		want   map[string]string
	}{
		"nothing known": {nil, map[string]string{}},
		"it waited": {&waiting, map[string]string{"KubeconfigReady": "Unknown WaitingForControlPlane " + waiting.Message,
			"Ready": "Unknown WaitingForControlPlane " + waiting.Message}},
		"it exists": {&rollout.Wait{}, map[string]string{"KubeconfigReady": "True KubeconfigReady ", "Ready": "True Ready "}},
	} {
		s := &scope{controlPlane: &rkev1.RKEControlPlane{}, outcome: &rollout.Outcome{Done: true}, election: rollout.Election{Init: "a"},
			machines: []*machine{withNode(server("a", rollout.ProgressApplied, rollout.ChangeNone, ""))}}
		if tc.before != nil {
			set(s, KubeconfigReadyCondition, *tc.before)
		}
		setPhases(s, nil)
		got := summary(s)
		for _, conditionType := range []string{KubeconfigReadyCondition, rkev1.ReadyCondition} {
			if got[conditionType] != tc.want[conditionType] {
				t.Errorf("%s: %s is %q, want %q", name, conditionType, got[conditionType], tc.want[conditionType])
			}
		}
	}
}

func withNode(m *machine) *machine {
	m.machine.Status.NodeRef.Name, m.state.Init = "node", true
	return m
}

type errTest struct{}

func (errTest) Error() string { return "broken" }

// TestKnownReplicas: what is not read in a reconcile, because of an error or of a deletion, is still what it was.
func TestKnownReplicas(t *testing.T) {
	s := &scope{controlPlane: &rkev1.RKEControlPlane{}, loaded: true, machines: []*machine{server("a", rollout.ProgressApplied,
		rollout.ChangeNone, "v1.36.3+k3s1")}}
	setStatus(s, nil)
	known := s.controlPlane.DeepCopy()
	if known.Status.Version == "" || ptr.Deref(known.Status.Replicas, 0) != 1 {
		t.Fatalf("the status is %+v", known.Status)
	}
	deleted := known.DeepCopy()
	deleted.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	counts := func(c *rkev1.RKEControlPlane) []any {
		s := c.Status
		return []any{s.Replicas, s.ReadyReplicas, s.AvailableReplicas, s.UpToDateReplicas, s.Versions, s.Version, s.Selector}
	}
	for name, test := range map[string]struct {
		scope *scope
		err   error
	}{
		"a list failed": {&scope{controlPlane: known.DeepCopy()}, errors.New("the API server is unreachable")},
		"a list failed in between": {&scope{controlPlane: known.DeepCopy(), machines: s.machines[:0]},
			errors.New("the API server is unreachable")},
		"being deleted": {&scope{controlPlane: deleted, deleting: "Waiting for machines"}, nil},
	} {
		setStatus(test.scope, test.err)
		if diff := cmp.Diff(counts(known), counts(test.scope.controlPlane)); diff != "" {
			t.Errorf("%s (-known +reported):\n%s", name, diff)
		}
	}
}

// TestFieldsWithoutEffect: fields that nothing acts on are named in a condition, and are in no applied spec.
func TestFieldsWithoutEffect(t *testing.T) {
	s := &scope{controlPlane: &rkev1.RKEControlPlane{}, loaded: true, kubeconfigRead: true, outcome: &rollout.Outcome{},
		machines: []*machine{}}
	s.controlPlane.Spec.KubernetesVersion = "v1.36.3+k3s1"
	s.controlPlane.Spec.Replicas = new(int32(3))
	s.controlPlane.Spec.RotateEncryptionKeys = &rkev1.RotateEncryptionKeys{Generation: 1}
	setStatus(s, nil)
	accepted := conditions.Get(s.controlPlane, ConfigurationAcceptedCondition)
	if accepted.Status != metav1.ConditionTrue || accepted.Reason != "AcceptedWithWarnings" ||
		!strings.HasPrefix(accepted.Message, "spec.replicas has no effect: ") {
		t.Errorf("ConfigurationAccepted is %+v", accepted)
	}
	applied := s.controlPlane.Status.AppliedSpec
	if applied == nil || applied.KubernetesVersion == "" || applied.Replicas != nil || applied.RotateEncryptionKeys == nil {
		t.Errorf("the applied spec is %+v", applied)
	}
	if s.controlPlane.Spec.Replicas == nil {
		t.Error("the spec itself was changed")
	}
}
