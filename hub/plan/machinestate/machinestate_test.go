package machinestate

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/plan/render"
	"github.com/drover-dev/drover/hub/plan/rollout"
	"github.com/drover-dev/drover/plans"
)

// A machine of somebody's infrastructure provider waits for it, one that its user has brought does not. One of a node driver has its
// infrastructure only after its Node, and waits for no more than to be created.
func TestUnusable(t *testing.T) {
	machine, bootstrap := &clusterv1.Machine{}, &rkev1.RKEBootstrap{}
	machine.CreationTimestamp = metav1.Unix(1000, 0)
	machine.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: "infrastructure.cluster.x-k8s.io",
		Kind: "LabMachine", Name: "a"}
	read := func() string {
		m, _, err := Of(machine, bootstrap, nil)
		if err != nil {
			t.Fatal(err)
		}
		if !m.Created.Equal(machine.CreationTimestamp.Time) {
			t.Errorf("it was created at %s", m.Created)
		}
		return m.Unusable
	}
	if got, want := read(), "has no infrastructure yet: LabMachine a is not provisioned"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	machine.Status.Initialization.InfrastructureProvisioned = ptr.To(true)
	if got := read(); got != "" {
		t.Errorf("got %q", got)
	}
	machine.Status.Initialization.InfrastructureProvisioned = nil
	provided := func() bool {
		m, _, _ := Of(machine, bootstrap, nil)
		return m.Provided
	}
	if !provided() {
		t.Error("a machine of a provider counts as brought by its user")
	}
	machine.Spec.InfrastructureRef.APIGroup = rkev1.GroupVersion.Group
	if got := read(); got != "" || provided() {
		t.Errorf("got %q", got)
	}
	machine.Spec.InfrastructureRef.APIGroup = "rke-machine.cattle.io"
	if got, want := read(), "has not been created yet: see LabMachine a"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	bootstrap.Annotations = map[string]string{rkev1.InfrastructureAddressesAnnotation: "{}"}
	if got := read(); got != "" {
		t.Errorf("got %q", got)
	}
}

// TestProviderFailure: what the provider reports as failed is said; what it reports while it works changes too often.
//
//nolint:staticcheck // deprecated, and the only place for what providers with the contract v1beta1 report
func TestProviderFailure(t *testing.T) {
	machine := &clusterv1.Machine{}
	machine.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: "infrastructure.cluster.x-k8s.io",
		Kind: "LabMachine", Name: "a"}
	ready := clusterv1.Condition{Type: clusterv1.InfrastructureReadyV1Beta1Condition, Status: corev1.ConditionFalse,
		Severity: clusterv1.ConditionSeverityInfo, Message: "starting"}
	reported := &clusterv1.MachineV1Beta1DeprecatedStatus{Conditions: clusterv1.Conditions{ready}}
	machine.Status.Deprecated = &clusterv1.MachineDeprecatedStatus{V1Beta1: reported}
	const waiting = "has no infrastructure yet: LabMachine a is not provisioned"
	if got := unusable(machine, &rkev1.RKEBootstrap{}); got != waiting {
		t.Errorf("got %q, want %q", got, waiting)
	}
	reported.Conditions[0].Severity, reported.Conditions[0].Message = clusterv1.ConditionSeverityError, "no capacity"
	if got, want := unusable(machine, &rkev1.RKEBootstrap{}), waiting+"; its provider says: no capacity"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	for text, want := range map[string]string{
		"two\n\tlines ": "two lines",
		"StatusCode: 400, RequestID: 0f0e1c4a-90a2-4d11-8b2e-6f1d2c3b4a59, api error": "StatusCode: 400, RequestID: ..., api error",
		"quota (Request-ID: req-0f0e1c4a-90a2-4d11-8b2e-6f1d2c3b4a59)":                "quota (Request-ID: ...)",
		`{"x-ms-correlation-request-id": "0f0e1c4a-90a2-4d11-8b2e-6f1d2c3b4a59"}`:     `{"x-ms-correlation-request-id": "..."}`,
		"image 0f0e1c4a-90a2-4d11-8b2e-6f1d2c3b4a59 not found":                        "image 0f0e1c4a-90a2-4d11-8b2e-6f1d2c3b4a59 not found",

		"Correlation ID: 0f0e1c4a-90a2-4d11-8b2e-6f1d2c3b4a59 Timestamp: 2026-11-30 10:26:53Z": "Correlation ID: ... Timestamp: ...",
		`{"timestamp": "2026-11-30T10:26:53.123Z"}`:                                            `{"timestamp": "..."}`,
		"Encoded authorization failure message: x4uD-Zq_9aVb7cK2mN8pR1":                        "Encoded authorization failure message: ...",
		"snapshot of 2026-11-30 10:26:53Z not found":                                           "snapshot of 2026-11-30 10:26:53Z not found",
	} {
		reported.Conditions[0].Message = text
		if got := unusable(machine, &rkev1.RKEBootstrap{}); got != waiting+"; its provider says: "+want {
			t.Errorf("got %q, want %q at its end", got, want)
		}
	}
	reported.FailureMessage = ptr.To(`Failure detected from referenced resource x/v1, Kind=LabMachine with name "a": no such image`)
	if got, want := unusable(machine, &rkev1.RKEBootstrap{}), waiting+"; its provider says: no such image"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// What the agent is doing is reported without what changes with every byte.
func TestAgentPhase(t *testing.T) {
	for _, tc := range []struct {
		progress *plans.Progress
		want     string
	}{
		{},
		{progress: &plans.Progress{Checksum: "another", Phase: plans.PhaseFiles}},
		{progress: &plans.Progress{Checksum: "c", Phase: plans.PhaseFiles}, want: "writing files"},
		{progress: &plans.Progress{Checksum: "c", Phase: plans.PhasePulling, Name: "install", Total: 2, PulledBytes: 7},
			want: "pulling the image of instruction install (1 of 2)"},
		{progress: &plans.Progress{Checksum: "c", Phase: plans.PhaseRunning, Name: "install", Index: 1, Total: 2},
			want: "running instruction install (2 of 2)"},
		{progress: &plans.Progress{Checksum: "c", Phase: "unheard of"}},
	} {
		got := agentPhase(rollout.Report{Checksum: "c", Progress: rollout.ProgressApplying, Status: plans.Status{Progress: tc.progress}})
		if got != tc.want {
			t.Errorf("%+v: got %q, want %q", tc.progress, got, tc.want)
		}
	}
	status := plans.Status{FailureCount: 1, FailedOutput: map[string][]byte{"system-agent-error": []byte("no space left on device")}}
	got := agentPhase(rollout.Report{Progress: rollout.ProgressApplying, Status: status})
	if want := "retrying after a failure; output of instruction system-agent-error: no space left on device"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// When an agent was last seen is known of servers.
func TestLastSeen(t *testing.T) {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
		Annotations: map[string]string{rkev1.AgentLastSeenAnnotation: "2026-11-22T04:00:00Z"},
	}}
	etcd := &rkev1.RKEBootstrap{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{rkev1.EtcdRoleLabel: "true"}}}
	m, _, err := Of(&clusterv1.Machine{}, etcd, secret)
	if want := time.Date(2026, 11, 22, 4, 0, 0, 0, time.UTC); err != nil || !m.LastSeen.Equal(want) {
		t.Errorf("got %v, %v", m.LastSeen, err)
	}
	secret.Annotations[rkev1.AgentLastSeenAnnotation] = "yesterday"
	if m, _, err = Of(&clusterv1.Machine{}, etcd, secret); err != nil || !m.LastSeen.IsZero() {
		t.Errorf("a record that is damaged: got %v, %v", m.LastSeen, err)
	}
}

// TestProbesPassedAt: when the probes have passed is known of servers of RKE2 that a plan restarts, whose static Pods are replaced after
// that.
func TestProbesPassedAt(t *testing.T) {
	passed := time.Date(2026, 11, 22, 4, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		version, role, annotation string
		want                      time.Time
		minor                     bool
	}{
		"etcd of RKE2":          {"v1.36.3+rke2r1", rkev1.EtcdRoleLabel, "2026-11-22T04:00:00Z", passed, false},
		"control plane of RKE2": {"v1.36.3+rke2r1", rkev1.ControlPlaneRoleLabel, "2026-11-22T04:00:00Z", passed, false},
		"restarts nothing":      {version: "v1.36.3+rke2r1", role: rkev1.EtcdRoleLabel, annotation: "2026-11-22T04:00:00Z", minor: true},
		"worker of RKE2":        {version: "v1.36.3+rke2r1", role: rkev1.WorkerRoleLabel, annotation: "2026-11-22T04:00:00Z"},
		"server of k3s":         {version: "v1.36.3+k3s1", role: rkev1.EtcdRoleLabel, annotation: "2026-11-22T04:00:00Z"},
		"no Node yet":           {role: rkev1.EtcdRoleLabel, annotation: "2026-11-22T04:00:00Z"},
		"not passed":            {version: "v1.36.3+rke2r1", role: rkev1.EtcdRoleLabel},
		"damaged":               {version: "v1.36.3+rke2r1", role: rkev1.EtcdRoleLabel, annotation: "yesterday"},
	} {
		machine := &clusterv1.Machine{}
		if tc.version != "" {
			machine.Status.NodeInfo = &corev1.NodeSystemInfo{KubeletVersion: tc.version}
		}
		bootstrap := &rkev1.RKEBootstrap{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{tc.role: "true"}}}
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{}}}
		if !tc.minor {
			secret.Annotations[rkev1.PlanRestartsAnnotation] = "true"
		}
		if tc.annotation != "" {
			secret.Annotations[rkev1.PlanProbesPassedAnnotation] = tc.annotation
		}
		m, _, err := Of(machine, bootstrap, secret)
		if err != nil || !m.ProbesPassedAt.Equal(tc.want) || m.ProbesPassed != (tc.annotation != "") {
			t.Errorf("%s: got %s, %t, %v", name, m.ProbesPassedAt, m.ProbesPassed, err)
		}
	}
}

// A condition that has not followed yet, or speaks of an earlier failure, is not the reason of a failure.
func TestFailure(t *testing.T) {
	report := rollout.Report{Status: plans.Status{FailedOutput: map[string][]byte{"check": []byte("the snapshot is damaged")}}}
	const output = "output of instruction check: the snapshot is damaged"
	for name, c := range map[string]struct {
		condition *metav1.Condition
		report    rollout.Report
		want      string
	}{
		"no condition": {report: report, want: "Applying the plan failed; " + output},
		"it is late": {condition: &metav1.Condition{Status: metav1.ConditionUnknown, Message: "Waiting for the agent"},
			want: "Applying the plan failed"},
		"an earlier failure": {condition: &metav1.Condition{Status: metav1.ConditionFalse, Message: "no space"}, report: report,
			want: "Applying the plan failed; " + output},
		"this failure": {condition: &metav1.Condition{Status: metav1.ConditionFalse, Message: "Attempt 1; " + output}, report: report,
			want: "Attempt 1; " + output},
	} {
		machine := &clusterv1.Machine{}
		if c.condition != nil {
			c.condition.Type = rkev1.PlanAppliedCondition
			machine.SetConditions([]metav1.Condition{*c.condition})
		}
		if got := failure(machine, c.report); got != c.want {
			t.Errorf("%s: got %q", name, got)
		}
	}
}

// What a plan does that was replaced before it was applied is under way until the one that has replaced it is applied.
func TestUnderwayOfAReplacedPlan(t *testing.T) {
	restart := plans.Plan{Instructions: []plans.Instruction{{CommonInstruction: plans.CommonInstruction{
		Name: render.InstallInstruction, Image: "i", Env: []string{"RESTART_STAMP=a", "DRAIN_HASH=b"}}}}}
	minor := restart
	minor.Files = []plans.File{{Path: "/f", Content: "aQ=="}}
	encode := func(p plans.Plan) []byte {
		raw, err := p.Encode()
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	for name, tc := range map[string]struct {
		annotation string
		delivered  plans.Plan
		state      plans.State
		want       rollout.Change
	}{
		"taken back":              {annotation: "restart", delivered: restart, state: plans.StatePending, want: rollout.ChangeRestart},
		"by a minor change":       {annotation: "drain", delivered: minor, state: plans.StateInProgress, want: rollout.ChangeDrain},
		"nothing was replaced":    {delivered: minor, state: plans.StatePending, want: rollout.ChangeMinor},
		"the other is applied":    {annotation: "restart", delivered: restart, state: plans.StateSucceeded},
		"what nobody has written": {annotation: "yes", delivered: minor, state: plans.StatePending, want: rollout.ChangeMinor},
	} {
		t.Run(name, func(t *testing.T) {
			secret := &corev1.Secret{Data: map[string][]byte{plans.KeyPlan: encode(tc.delivered), plans.KeyPlanState: []byte(tc.state),
				plans.KeyPlanRevision: []byte("2"), plans.KeyAppliedPlan: encode(restart),
				plans.KeyAppliedChecksum: []byte(plans.Checksum(encode(restart)))}}
			secret.Annotations = map[string]string{rkev1.PlanReplacedAnnotation: tc.annotation}
			m, _, err := Of(&clusterv1.Machine{}, &rkev1.RKEBootstrap{}, secret)
			if err != nil || m.Underway != tc.want {
				t.Errorf("got %q, %v", m.Underway, err)
			}
		})
	}
}
