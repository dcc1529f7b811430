package capi

import (
	"bytes"
	"context"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	v1beta1conditions "sigs.k8s.io/cluster-api/util/conditions/deprecated/v1beta1"
	"sigs.k8s.io/cluster-api/util/patch" //nolint:depguard // it is what the controllers of Cluster API use
	"sigs.k8s.io/cluster-api/util/paused"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/drover-dev/drover/hub/testenv/fakeclient"
)

// TestStatusClient: what Cluster API's patch helper writes of the status of a Machine is one request, and the result is what it is without
// the client, also after a conflict.
func TestStatusClient(t *testing.T) {
	condition := func(m *clusterv1.Machine) {
		conditions.Set(m, metav1.Condition{Type: clusterv1.ReadyCondition, Status: metav1.ConditionTrue, Reason: "Ready"})
	}
	deprecated := func(m *clusterv1.Machine) {
		v1beta1conditions.MarkTrue(m, clusterv1.ReadyV1Beta1Condition)
	}
	phase := func(m *clusterv1.Machine) { m.Status.Phase = "Running" }
	noNode := func(m *clusterv1.Machine) { m.Status.NodeRef = clusterv1.MachineNodeReference{} }
	spec := func(m *clusterv1.Machine) { m.Spec.ProviderID = "dev://m" }
	deleted := func(m *clusterv1.Machine) { m.DeletionTimestamp = ptr.To(metav1.Now()) }
	type changes []func(*clusterv1.Machine)
	for name, tc := range map[string]struct {
		before, changes   changes
		conflicts, writes int
	}{
		"conditions and the rest":    {changes: changes{condition, phase, noNode}, writes: 1},
		"of both versions":           {changes: changes{condition, deprecated, phase}, writes: 1},
		"after the specification":    {changes: changes{condition, phase, noNode, spec}, writes: 2},
		"conditions alone":           {changes: changes{condition}, writes: 1},
		"the rest alone":             {changes: changes{phase, noNode}, writes: 1},
		"after a conflict":           {changes: changes{condition, phase, noNode}, conflicts: 1, writes: 1},
		"nothing":                    {},
		"the specification alone":    {changes: changes{spec}},
		"a condition and the spec":   {changes: changes{condition, spec}, writes: 1},
		"of one that is deleted":     {before: changes{deleted}, changes: changes{condition, phase}, writes: 2},
		"conditions that were there": {before: changes{condition, deprecated}, changes: changes{phase}, writes: 1},
	} {
		t.Run(name, func(t *testing.T) {
			m := testMachine()
			m.Status.NodeRef.Name = "n"
			for _, change := range tc.before {
				change(m)
			}
			stored, writes := machineStore(t, tc.conflicts, m)
			plain, _ := machineStore(t, 0, m)
			got := reconcileMachine(t, newStatusClient(stored, m), stored, tc.changes)
			want := reconcileMachine(t, plain, plain, tc.changes)
			if got.Status.Phase != want.Status.Phase || got.Status.NodeRef != want.Status.NodeRef || got.Spec.ProviderID != want.Spec.ProviderID ||
				conditions.IsTrue(got, clusterv1.ReadyCondition) != conditions.IsTrue(want, clusterv1.ReadyCondition) ||
				v1beta1conditions.IsTrue(got, clusterv1.ReadyV1Beta1Condition) != v1beta1conditions.IsTrue(want, clusterv1.ReadyV1Beta1Condition) {
				t.Errorf("got %+v, want %+v", got, want)
			}
			if *writes != tc.writes {
				t.Errorf("the status was written %d times, want %d", *writes, tc.writes)
			}
		})
	}
}

// reconcileMachine reads a Machine, changes it and patches it, as a controller of Cluster API does, and returns what is stored then.
func reconcileMachine(t *testing.T, c, stored client.Client, changes []func(*clusterv1.Machine)) *clusterv1.Machine {
	t.Helper()
	key, read, after := client.ObjectKeyFromObject(testMachine()), &clusterv1.Machine{}, &clusterv1.Machine{}
	if err := c.Get(t.Context(), key, read); err != nil {
		t.Fatal(err)
	}
	helper, err := patch.NewHelper(read, c)
	if err != nil {
		t.Fatal(err)
	}
	for _, change := range changes {
		change(read)
	}
	if err := helper.Patch(t.Context(), read); err != nil {
		t.Fatal(err)
	}
	if err := stored.Get(t.Context(), key, after); err != nil {
		t.Fatal(err)
	}
	return after
}

// TestInvalidStatus: where the API server refuses the rest of a status, the conditions are written without it.
func TestInvalidStatus(t *testing.T) {
	m, read, after := testMachine(), &clusterv1.Machine{}, &clusterv1.Machine{}
	stored, writes := machineStore(t, 0, m)
	refuse := func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch,
		opts ...client.SubResourcePatchOption,
	) error {
		data, err := p.Data(o)
		if err != nil {
			return err
		}
		if bytes.Contains(data, []byte(`"addresses"`)) {
			return apierrors.NewInvalid(clusterv1.GroupVersion.WithKind("Machine").GroupKind(), o.GetName(), nil)
		}
		return c.SubResource(sub).Patch(ctx, o, p, opts...)
	}
	c := newStatusClient(interceptor.NewClient(stored.(client.WithWatch), interceptor.Funcs{SubResourcePatch: refuse}), m)
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(m), read); err != nil {
		t.Fatal(err)
	}
	helper, err := patch.NewHelper(read, c)
	if err != nil {
		t.Fatal(err)
	}
	conditions.Set(read, metav1.Condition{Type: clusterv1.ReadyCondition, Status: metav1.ConditionTrue, Reason: "Ready"})
	read.Status.Addresses = clusterv1.MachineAddresses{{Type: clusterv1.MachineInternalIP}}
	if err := helper.Patch(t.Context(), read); err == nil {
		t.Error("nothing says that the status is invalid")
	}
	if err := stored.Get(t.Context(), client.ObjectKeyFromObject(m), after); err != nil {
		t.Fatal(err)
	}
	if !conditions.IsTrue(after, clusterv1.ReadyCondition) || len(after.Status.Addresses) > 0 || *writes != 1 {
		t.Errorf("%d writes, status %+v", *writes, after.Status)
	}
}

// TestUnpausedMachines: a new Machine gets the condition Paused with its first others, unless it is paused.
func TestUnpausedMachines(t *testing.T) {
	for name, isPaused := range map[string]bool{"not paused": false, "paused": true} {
		t.Run(name, func(t *testing.T) {
			cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "c"}}
			cluster.Spec.Paused = ptr.To(isPaused)
			m := testMachine()
			stored, writes := machineStore(t, 0, m, cluster)
			c, read := newStatusClient(unpausedMachines{stored}, m), &clusterv1.Machine{}
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(m), read); err != nil {
				t.Fatal(err)
			}
			helper, err := patch.NewHelper(read, c)
			if err != nil {
				t.Fatal(err)
			}
			got, requeue, err := paused.EnsurePausedCondition(t.Context(), c, cluster, read)
			if err != nil || got != isPaused || requeue != isPaused || (*writes > 0) != isPaused {
				t.Fatalf("paused %t, requeue %t, %d writes, %v", got, requeue, *writes, err)
			}
			if isPaused {
				return
			}
			conditions.Set(read, metav1.Condition{Type: clusterv1.ReadyCondition, Status: metav1.ConditionFalse, Reason: "NotReady"})
			if err := helper.Patch(t.Context(), read); err != nil {
				t.Fatal(err)
			}
			after := &clusterv1.Machine{}
			if err := stored.Get(t.Context(), client.ObjectKeyFromObject(m), after); err != nil {
				t.Fatal(err)
			}
			if !conditions.IsFalse(after, clusterv1.PausedCondition) || !conditions.IsFalse(after, clusterv1.ReadyCondition) || *writes != 1 {
				t.Errorf("%d writes, conditions %v", *writes, after.Status.Conditions)
			}
		})
	}
}

func testMachine() *clusterv1.Machine {
	return &clusterv1.Machine{
		ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "m", UID: "u", Finalizers: []string{clusterv1.MachineFinalizer}},
		Spec:       clusterv1.MachineSpec{ClusterName: "c"},
	}
}

// machineStore returns a client with objects, and the number of its writes of a status. The first of these, as many as conflicts, fail.
func machineStore(t *testing.T, conflicts int, objects ...client.Object) (client.Client, *int) {
	t.Helper()
	writes := new(int)
	c := fake.NewClientBuilder().WithScheme(fakeclient.Scheme(t, clusterv1.AddToScheme)).WithObjects(objects...).
		WithStatusSubresource(&clusterv1.Machine{}).
		WithInterceptorFuncs(interceptor.Funcs{SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object,
			p client.Patch, opts ...client.SubResourcePatchOption,
		) error {
			if conflicts > 0 {
				conflicts--
				return apierrors.NewConflict(schema.GroupResource{Resource: "machines"}, o.GetName(), nil)
			}
			*writes++
			return c.SubResource(sub).Patch(ctx, o, p, opts...)
		}}).Build()
	return c, writes
}
