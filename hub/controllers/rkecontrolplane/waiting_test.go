package rkecontrolplane

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/plan/rollout"
	"github.com/drover-dev/drover/hub/testenv/fakeclient"
	"github.com/drover-dev/drover/hub/util/cause"
)

// TestMachinesOfAWaitingControlPlane: while the control plane waits before it comes to machines, as for release data, no health check
// replaces those that have not joined yet. When the wait is over, one that has its Node is not protected any longer.
func TestMachinesOfAWaitingControlPlane(t *testing.T) {
	now := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	created := server("created", rollout.ProgressNone, rollout.ChangeFirst, "")
	joined := server("joined", rollout.ProgressApplied, rollout.ChangeNone, "")
	joined.machine.Annotations = map[string]string{clusterv1.MachineSkipRemediationAnnotation: waitingMark}
	joined.machine.Status.NodeRef.Name = "n"
	s := &scope{now: now, machines: []*machine{created, joined}, refused: cause.New("OwnerMismatch", "the Cluster is another one"),
		controlPlane: &rkev1.RKEControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: controlPlaneKey.Namespace, Name: "c"}}}
	objects := fake.NewClientBuilder().WithScheme(fakeclient.Scheme(t, clusterv1.AddToScheme))
	for _, m := range s.machines {
		m.machine.Namespace, m.machine.CreationTimestamp = controlPlaneKey.Namespace, metav1.NewTime(now.Add(-10*time.Minute))
		m.machine.OwnerReferences = []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "MachineSet", Name: "pool",
			UID: "pool", Controller: new(true)}}
		objects.WithObjects(m.machine)
	}
	c := objects.Build()
	if err := (&Reconciler{Client: c, Now: func() time.Time { return now }}).reconcileNormal(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"created": waitingMark, "joined": ""} {
		after := &clusterv1.Machine{}
		if err := c.Get(t.Context(), client.ObjectKey{Namespace: controlPlaneKey.Namespace, Name: name}, after); err != nil {
			t.Fatal(err)
		}
		if got := after.Annotations[clusterv1.MachineSkipRemediationAnnotation]; got != want {
			t.Errorf("%s: the annotation is %q, want %q", name, got, want)
		}
	}
}

// TestMachinesOfAPausedControlPlane: while the RKEControlPlane is paused by its annotation, no health check replaces machines that wait to
// join. While the Cluster is paused, none would, and nothing is written.
func TestMachinesOfAPausedControlPlane(t *testing.T) {
	now := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	ref := func(kind, name string) clusterv1.ContractVersionedObjectReference {
		return clusterv1.ContractVersionedObjectReference{APIGroup: rkev1.GroupVersion.Group, Kind: kind, Name: name}
	}
	for name, tc := range map[string]struct {
		cluster bool // is paused itself
		created time.Duration
		want    string
		again   time.Duration
	}{
		"waits for long":            {created: 10 * time.Minute, want: waitingMark},
		"new":                       {created: time.Minute, again: 2 * time.Minute},
		"of a Cluster that is, too": {cluster: true, created: 10 * time.Minute},
	} {
		meta := func(name, uid string) metav1.ObjectMeta {
			return metav1.ObjectMeta{Namespace: controlPlaneKey.Namespace, Name: name, UID: types.UID(uid),
				Labels: map[string]string{clusterv1.ClusterNameLabel: controlPlaneKey.Name, rkev1.ClusterNameLabel: controlPlaneKey.Name}}
		}
		cluster := &clusterv1.Cluster{ObjectMeta: meta(controlPlaneKey.Name, "cluster")}
		cluster.Spec.ControlPlaneRef, cluster.Spec.Paused = ref("RKEControlPlane", controlPlaneKey.Name), &tc.cluster
		controlPlane := &rkev1.RKEControlPlane{ObjectMeta: meta(controlPlaneKey.Name, "control-plane")}
		controlPlane.Annotations = map[string]string{clusterv1.PausedAnnotation: ""}
		controlPlane.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(cluster, clusterv1.GroupVersion.WithKind("Cluster"))}
		machine := &clusterv1.Machine{ObjectMeta: meta("w", "machine")}
		machine.CreationTimestamp = metav1.NewTime(now.Add(-tc.created))
		machine.OwnerReferences = []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "MachineSet", Name: "pool",
			UID: "pool", Controller: new(true)}}
		machine.Spec.ClusterName, machine.Spec.Bootstrap.ConfigRef = controlPlaneKey.Name, ref("RKEBootstrap", "w")
		machine.Spec.InfrastructureRef = ref("CustomMachine", "w")
		bootstrap := &rkev1.RKEBootstrap{ObjectMeta: meta("w", "bootstrap")}
		bootstrap.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(machine, clusterv1.GroupVersion.WithKind("Machine"))}
		plan := &corev1.Secret{ObjectMeta: meta(rkev1.PlanSecretName("w"), "plan"), Type: rkev1.MachinePlanSecretType}
		plan.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(bootstrap, rkev1.GroupVersion.WithKind("RKEBootstrap"))}
		c := fake.NewClientBuilder().
			WithScheme(fakeclient.Scheme(t, corev1.AddToScheme, clusterv1.AddToScheme, rkev1.AddToScheme, operationv1.AddToScheme)).
			WithStatusSubresource(controlPlane).WithObjects(cluster, controlPlane, machine, bootstrap, plan).Build()
		r := &Reconciler{Client: c, Cache: c, Live: c, Now: func() time.Time { return now }}
		result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: controlPlaneKey})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(machine), machine); err != nil {
			t.Fatal(err)
		}
		if got := machine.Annotations[clusterv1.MachineSkipRemediationAnnotation]; got != tc.want || result.RequeueAfter != tc.again {
			t.Errorf("%s: the annotation is %q, again after %s", name, got, result.RequeueAfter)
		}
	}
}

// TestWaitingMachines: no health check replaces a machine for having no Node while the hub has not let it join, nor soon after that.
func TestWaitingMachines(t *testing.T) {
	now := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	marked := func(m *machine) {
		m.machine.Annotations = map[string]string{clusterv1.MachineSkipRemediationAnnotation: waitingMark}
	}
	applying := func(m *machine, delivered time.Duration) {
		m.state.Progress = rollout.ProgressApplying
		m.secret.Annotations = map[string]string{rkev1.PlanLastUpdatedAnnotation: now.Add(-delivered).Format(time.RFC3339)}
	}
	waited := func(m *machine) {
		marked(m)
		m.decision.Deliver = true
	}
	starts := func(delivered time.Duration) func(*machine) {
		return func(m *machine) {
			marked(m)
			applying(m, delivered)
		}
	}
	for name, tc := range map[string]struct {
		change func(*machine)
		want   string // the annotation
		after  time.Duration
	}{
		"waits for its turn": {want: waitingMark},
		"waits for a moment": {change: func(m *machine) {
			m.machine.Status.Conditions[0].LastTransitionTime = metav1.NewTime(now.Add(-time.Minute))
		}, after: 2 * time.Minute},
		"gets its plan":            {change: func(m *machine) { m.decision.Deliver = true }},
		"has no infrastructure":    {change: func(m *machine) { m.state.Unusable = "has no infrastructure yet" }},
		"has no plan Secret":       {change: func(m *machine) { m.secret = nil }},
		"is being deleted":         {change: func(m *machine) { m.state.Deleting = true }},
		"is in no MachineSet":      {change: func(m *machine) { m.machine.OwnerReferences = nil }},
		"starts without a mark":    {change: func(m *machine) { applying(m, time.Minute) }},
		"starts":                   {change: starts(5 * time.Minute), want: waitingMark, after: 15 * time.Minute},
		"does not start":           {change: starts(30 * time.Minute)},
		"gets its plan after long": {change: waited, want: waitingMark},
		"has its Node": {change: func(m *machine) {
			marked(m)
			m.machine.Status.NodeRef.Name = "n"
		}},
		"a user has set the annotation": {change: func(m *machine) {
			m.machine.Annotations = map[string]string{clusterv1.MachineSkipRemediationAnnotation: "mine"}
		}, want: "mine"},
		"the cluster is being restored": {change: func(m *machine) {
			marked(m)
			m.machine.Annotations[rkev1.RestoringAnnotation] = "a restore"
			m.machine.Status.NodeRef.Name = "n"
		}, want: waitingMark},
	} {
		m := server("w", rollout.ProgressNone, rollout.ChangeFirst, "")
		m.machine.Namespace = "fleet"
		m.machine.OwnerReferences = []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "MachineSet", Name: "pool",
			UID: "pool", Controller: new(true)}}
		m.machine.Status.Conditions = []metav1.Condition{{Type: clusterv1.MachineInfrastructureReadyCondition, Status: metav1.ConditionTrue,
			Reason: "Ready", LastTransitionTime: metav1.NewTime(now.Add(-5 * time.Minute))}}
		if tc.change != nil {
			tc.change(m)
		}
		c := fake.NewClientBuilder().WithScheme(fakeclient.Scheme(t, clusterv1.AddToScheme)).WithObjects(m.machine).Build()
		s := &scope{machines: []*machine{m}, now: now}
		if err := (&Reconciler{Client: c}).markMachines(t.Context(), s, s.protectWaiting); err != nil {
			t.Fatal(err)
		}
		after := &clusterv1.Machine{}
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(m.machine), after); err != nil {
			t.Fatal(err)
		}
		if got := after.Annotations[clusterv1.MachineSkipRemediationAnnotation]; got != tc.want || s.requeueAfter != tc.after {
			t.Errorf("%s: the annotation is %q, again after %s", name, got, s.requeueAfter)
		}
	}
}

// TestWaitingMachineAfterRestore: a machine that waits for its plan when a restore ends is protected without a moment in between.
func TestWaitingMachineAfterRestore(t *testing.T) {
	now := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	m := server("w", rollout.ProgressNone, rollout.ChangeFirst, "")
	m.machine.Namespace, m.machine.CreationTimestamp = "fleet", metav1.NewTime(now.Add(-time.Hour))
	m.machine.OwnerReferences = []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "MachineSet", Name: "pool",
		UID: "pool", Controller: new(true)}}
	m.machine.Annotations = map[string]string{rkev1.RestoringAnnotation: "a restore",
		clusterv1.MachineSkipRemediationAnnotation: rkev1.RestoringAnnotation}
	writes := 0
	c := fake.NewClientBuilder().WithScheme(fakeclient.Scheme(t, clusterv1.AddToScheme)).WithObjects(m.machine).
		WithInterceptorFuncs(interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch,
			opts ...client.PatchOption) error {
			writes++
			return c.Patch(ctx, object, patch, opts...)
		}}).Build()
	want := map[string]string{clusterv1.MachineSkipRemediationAnnotation: waitingMark}
	for range 2 { // the second one finds nothing to change
		if err := (&Reconciler{Client: c}).protectMachines(t.Context(), &scope{machines: []*machine{m}, now: now}); err != nil {
			t.Fatal(err)
		}
		after := &clusterv1.Machine{}
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(m.machine), after); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, after.Annotations); diff != "" || writes != 1 {
			t.Errorf("after %d writes (-want +got):\n%s", writes, diff)
		}
		m.machine = after
	}
}
