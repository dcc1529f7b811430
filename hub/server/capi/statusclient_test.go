package capi

import (
	"bytes"
	"context"
	"maps"
	"slices"
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
	label := func(m *clusterv1.Machine) { m.Labels = map[string]string{"a": "b"} }
	deleted := func(m *clusterv1.Machine) { m.DeletionTimestamp = ptr.To(metav1.Now()) }
	type changes []func(*clusterv1.Machine)
	for name, tc := range map[string]struct {
		before, changes changes
		// fail are the requests that fail with a conflict, and want those that are served.
		fail, want []string
	}{
		"conditions and the rest":   {changes: changes{condition, phase, noNode}, want: []string{"status"}},
		"of both versions":          {changes: changes{condition, deprecated, phase}, want: []string{"status"}},
		"after the specification":   {changes: changes{condition, phase, noNode, spec, label}, want: []string{"others", "status"}},
		"conditions alone":          {changes: changes{condition}, want: []string{"status"}},
		"the rest alone":            {changes: changes{phase, noNode}, want: []string{"status"}},
		"after a conflict":          {changes: changes{condition, phase, noNode}, fail: []string{"status"}, want: []string{"status"}},
		"nothing":                   {},
		"the specification alone":   {changes: changes{spec}, want: []string{"others"}},
		"a condition and the spec":  {changes: changes{condition, spec}, want: []string{"others", "status"}},
		"the rest and the spec":     {changes: changes{phase, spec}, want: []string{"others", "status"}},
		"a conflict of the spec":    {changes: changes{condition, phase, spec}, fail: []string{"others"}, want: []string{"others", "status"}},
		"a conflict after the spec": {changes: changes{condition, phase, spec}, fail: []string{"status"}, want: []string{"others", "status"}},
		"a conflict twice after that": {changes: changes{condition, spec}, fail: []string{"status", "status"},
			want: []string{"others", "status"}},
		"of one that is deleted":     {before: changes{deleted}, changes: changes{condition, phase}, want: []string{"status", "status"}},
		"conditions that were there": {before: changes{condition, deprecated}, changes: changes{phase}, want: []string{"status"}},
	} {
		t.Run(name, func(t *testing.T) {
			m := testMachine()
			m.Status.NodeRef.Name = "n"
			for _, change := range tc.before {
				change(m)
			}
			stored, writes := machineStore(t, tc.fail, m)
			plain, _ := machineStore(t, nil, m)
			got := reconcileMachine(t, newStatusClient(stored, m), stored, tc.changes)
			want := reconcileMachine(t, plain, plain, tc.changes)
			if got.Status.Phase != want.Status.Phase || got.Status.NodeRef != want.Status.NodeRef ||
				got.Spec.ProviderID != want.Spec.ProviderID || !maps.Equal(got.Labels, want.Labels) ||
				conditions.IsTrue(got, clusterv1.ReadyCondition) != conditions.IsTrue(want, clusterv1.ReadyCondition) ||
				v1beta1conditions.IsTrue(got, clusterv1.ReadyV1Beta1Condition) != v1beta1conditions.IsTrue(want, clusterv1.ReadyV1Beta1Condition) {
				t.Errorf("got %+v, want %+v", got, want)
			}
			if !slices.Equal(*writes, tc.want) {
				t.Errorf("it wrote %v, want %v", *writes, tc.want)
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

// TestConditionBetween: a condition that another controller writes after the specification, and before the conditions, stays.
func TestConditionBetween(t *testing.T) {
	m := testMachine()
	stored, writes := machineStore(t, nil, m)
	others := func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
		if err := c.Patch(ctx, o, p, opts...); err != nil {
			return err
		}
		other := &clusterv1.Machine{}
		if err := c.Get(ctx, client.ObjectKeyFromObject(m), other); err != nil {
			return err
		}
		conditions.Set(other, metav1.Condition{Type: "Other", Status: metav1.ConditionTrue, Reason: "Other"})
		return c.Status().Update(ctx, other)
	}
	got := reconcileMachine(t, newStatusClient(interceptor.NewClient(stored.(client.WithWatch), interceptor.Funcs{Patch: others}), m), stored,
		[]func(*clusterv1.Machine){func(m *clusterv1.Machine) {
			conditions.Set(m, metav1.Condition{Type: clusterv1.ReadyCondition, Status: metav1.ConditionTrue, Reason: "Ready"})
			m.Spec.ProviderID, m.Status.Phase = "dev://m", "Running"
		}})
	if !conditions.IsTrue(got, "Other") || !conditions.IsTrue(got, clusterv1.ReadyCondition) || got.Status.Phase != "Running" {
		t.Errorf("status %+v after %v", got.Status, *writes)
	}
	if want := []string{"others", "status", "status"}; !slices.Equal(*writes, want) { // the first of these is a conflict
		t.Errorf("it wrote %v, want %v", *writes, want)
	}
}

// TestInvalidStatus: where the API server refuses the rest of a status, the conditions are written without it.
func TestInvalidStatus(t *testing.T) {
	m, read, after := testMachine(), &clusterv1.Machine{}, &clusterv1.Machine{}
	stored, writes := machineStore(t, nil, m)
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
	if !conditions.IsTrue(after, clusterv1.ReadyCondition) || len(after.Status.Addresses) > 0 || len(*writes) != 1 {
		t.Errorf("wrote %v, status %+v", *writes, after.Status)
	}
}

// TestUnpausedMachines: a new Machine gets the condition Paused with its first others, unless it is paused.
func TestUnpausedMachines(t *testing.T) {
	for name, isPaused := range map[string]bool{"not paused": false, "paused": true} {
		t.Run(name, func(t *testing.T) {
			cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "c"}}
			cluster.Spec.Paused = ptr.To(isPaused)
			m := testMachine()
			stored, writes := machineStore(t, nil, m, cluster)
			c, read := newStatusClient(unpausedMachines{stored}, m), &clusterv1.Machine{}
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(m), read); err != nil {
				t.Fatal(err)
			}
			helper, err := patch.NewHelper(read, c)
			if err != nil {
				t.Fatal(err)
			}
			got, requeue, err := paused.EnsurePausedCondition(t.Context(), c, cluster, read)
			if err != nil || got != isPaused || requeue != isPaused || (len(*writes) > 0) != isPaused {
				t.Fatalf("paused %t, requeue %t, wrote %v, %v", got, requeue, *writes, err)
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
			if !conditions.IsFalse(after, clusterv1.PausedCondition) || !conditions.IsFalse(after, clusterv1.ReadyCondition) || len(*writes) != 1 {
				t.Errorf("wrote %v, conditions %v", *writes, after.Status.Conditions)
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

// machineStore returns a client with objects, and what it writes: a status or others. The first of these that are as fail says fail.
func machineStore(t *testing.T, fail []string, objects ...client.Object) (client.Client, *[]string) {
	t.Helper()
	writes := new([]string)
	write := func(what string, o client.Object, send func() error) error {
		if len(fail) > 0 && fail[0] == what {
			fail = fail[1:]
			return apierrors.NewConflict(schema.GroupResource{Resource: "machines"}, o.GetName(), nil)
		}
		*writes = append(*writes, what)
		return send()
	}
	c := fake.NewClientBuilder().WithScheme(fakeclient.Scheme(t, clusterv1.AddToScheme)).WithObjects(objects...).
		WithStatusSubresource(&clusterv1.Machine{}).
		WithInterceptorFuncs(interceptor.Funcs{
			Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
				return write("others", o, func() error { return c.Patch(ctx, o, p, opts...) })
			},
			SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch,
				opts ...client.SubResourcePatchOption,
			) error {
				return write(sub, o, func() error { return c.SubResource(sub).Patch(ctx, o, p, opts...) })
			},
		}).Build()
	return c, writes
}
