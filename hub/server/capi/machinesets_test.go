package capi

import (
	"context"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/drover-dev/drover/hub/testenv/fakeclient"
)

// TestMachineSetClient: a MachineSet that applies a Machine as it is sends no request, also after another change of its status, until the
// Machine has been deleted.
func TestMachineSetClient(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := clusterv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	applies := 0
	server := interceptor.NewClient(fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&clusterv1.Machine{}).Build(),
		interceptor.Funcs{Apply: func(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			applies++
			return c.Apply(ctx, o, opts...)
		}})
	informers := &informertest.FakeInformers{Scheme: scheme}
	c, err := machineSetClient(t.Context(), server, informers)
	if err != nil {
		t.Fatal(err)
	}
	machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "m"}}
	apply := func(what string, want int) {
		t.Helper()
		wanted := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": clusterv1.GroupVersion.String(), "kind": "Machine",
			"metadata": map[string]any{"namespace": "fleet", "name": "m", "labels": map[string]any{"pool": "a"}},
		}}
		if err := c.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(wanted), client.FieldOwner("capi-machineset")); err != nil {
			t.Fatal(err)
		}
		if applies != want {
			t.Errorf("%s: %d requests were sent, want %d", what, applies, want)
		}
		if err := server.Get(t.Context(), client.ObjectKeyFromObject(machine), machine); err != nil {
			t.Fatal(err)
		}
		if wanted.GetResourceVersion() != machine.ResourceVersion {
			t.Errorf("%s: the result has version %q, the stored one %q", what, wanted.GetResourceVersion(), machine.ResourceVersion)
		}
	}
	apply("new", 1)
	machine.Status.Phase = "Running"
	if err := server.Status().Update(t.Context(), machine); err != nil {
		t.Fatal(err)
	}
	apply("its status has changed", 1)
	informer, err := informers.FakeInformerFor(t.Context(), machine)
	if err != nil {
		t.Fatal(err)
	}
	informer.Delete(machine)
	apply("it was deleted", 2)
}

// TestMachineSetAppliesMachine: a Machine is applied again when something of it has changed that the MachineSet applies, or the MachineSet
// itself, and not when others have written its version, bootstrap data and provider ID.
func TestMachineSetAppliesMachine(t *testing.T) {
	m := newAppliedMachine(t)
	labels, more := map[string]string{"pool": "a"}, map[string]string{"pool": "a", "more": "b"}
	spec := clusterv1.MachineSpec{ClusterName: "c", MinReadySeconds: ptr.To[int32](5),
		Bootstrap:         clusterv1.Bootstrap{ConfigRef: clusterv1.ContractVersionedObjectReference{Kind: "RKEBootstrap", Name: "m"}},
		InfrastructureRef: clusterv1.ContractVersionedObjectReference{Kind: "DevMachine", Name: "m"}}
	m.apply("new", spec, more, 1)
	stored := m.patch(`{"spec":{"version":"v1.33.1","providerID":"dev://m","bootstrap":{"dataSecretName":"m"}}}`)
	spec.Version = stored.Spec.Version
	m.apply("others have written the rest", spec, more, 1)
	m.apply("nothing has changed since", spec, more, 1)
	spec.Version = m.patch(`{"spec":{"version":"v1.33.2"}}`).Spec.Version
	m.apply("an upgrade", spec, more, 1)
	m.patch(`{"spec":{"minReadySeconds":7}}`)
	m.apply("others have changed what is applied", spec, more, 2)
	if stored = m.apply("one label less", spec, labels, 3); len(stored.Labels) != 1 {
		t.Errorf("its labels are %v", stored.Labels)
	}
	spec.Version = "v1.34.0"
	if stored = m.apply("updated in place", spec, labels, 4); stored.Spec.Version != "v1.34.0" {
		t.Errorf("its version is %q", stored.Spec.Version)
	}
	spec.Version = ""
	m.apply("updated in place to no version", spec, labels, 5)
	spec.MinReadySeconds = nil
	if stored = m.apply("one field less", spec, labels, 6); stored.Spec.MinReadySeconds != nil {
		t.Errorf("its minReadySeconds are %d", *stored.Spec.MinReadySeconds)
	}
	if stored.Spec.ProviderID != "dev://m" || ptr.Deref(stored.Spec.Bootstrap.DataSecretName, "") != "m" {
		t.Errorf("what others have written is gone: %+v", stored.Spec)
	}
}

// appliedMachine is a Machine that the client of the MachineSet controller applies.
type appliedMachine struct {
	*testing.T
	server  client.Client
	client  client.Client
	applies *int
}

func newAppliedMachine(t *testing.T) appliedMachine {
	server, applies := fakeclient.CountApplies(fake.NewClientBuilder().WithScheme(fakeclient.Scheme(t, clusterv1.AddToScheme)).Build())
	c, err := machineSetClient(t.Context(), server, &informertest.FakeInformers{Scheme: server.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	return appliedMachine{t, server, c, applies}
}

// apply applies the Machine as Cluster API does, and fails the test unless so many requests were sent by then. It returns what is stored.
func (m appliedMachine) apply(what string, spec clusterv1.MachineSpec, labels map[string]string, want int) *clusterv1.Machine {
	m.Helper()
	machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "m", Labels: labels}, Spec: spec}
	wanted := &unstructured.Unstructured{}
	if err := m.server.Scheme().Convert(machine, wanted, nil); err != nil {
		m.Fatal(err)
	}
	delete(wanted.Object, "status")
	unstructured.RemoveNestedField(wanted.Object, "metadata", "creationTimestamp")
	err := m.client.Apply(m.Context(), client.ApplyConfigurationFromUnstructured(wanted), client.FieldOwner("capi-machineset"),
		client.ForceOwnership)
	if err != nil {
		m.Fatalf("%s: %v", what, err)
	}
	if *m.applies != want {
		m.Errorf("%s: %d requests were sent, want %d", what, *m.applies, want)
	}
	stored := m.stored()
	if wanted.GetResourceVersion() != stored.ResourceVersion {
		m.Errorf("%s: the result has version %q, the stored one %q", what, wanted.GetResourceVersion(), stored.ResourceVersion)
	}
	return stored
}

// patch is what others write. It returns what is stored.
func (m appliedMachine) patch(body string) *clusterv1.Machine {
	m.Helper()
	machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "m"}}
	if err := m.server.Patch(m.Context(), machine, client.RawPatch(types.MergePatchType, []byte(body))); err != nil {
		m.Fatal(err)
	}
	return m.stored()
}

func (m appliedMachine) stored() *clusterv1.Machine {
	m.Helper()
	machine := &clusterv1.Machine{}
	if err := m.server.Get(m.Context(), client.ObjectKey{Namespace: "fleet", Name: "m"}, machine); err != nil {
		m.Fatal(err)
	}
	return machine
}

// TestEventsOfMachines: the MachineSet controller gets no event that says nothing about whether a MachineSet may adopt a Machine, and each
// one of Machines that it owns.
func TestEventsOfMachines(t *testing.T) {
	owner := metav1.OwnerReference{APIVersion: "cluster.x-k8s.io/v1beta2", Kind: "MachineSet", Name: "s", Controller: ptr.To(true)}
	adopt := func(m *clusterv1.Machine) { m.OwnerReferences = append(m.OwnerReferences, owner) }
	for name, tc := range map[string]struct {
		before, change func(*clusterv1.Machine)
		want           int
	}{
		"status of an orphan":          {nil, func(m *clusterv1.Machine) { m.Status.Phase = "Running" }, 0},
		"its other owners":             {nil, func(m *clusterv1.Machine) { m.OwnerReferences = nil }, 0},
		"its labels":                   {nil, func(m *clusterv1.Machine) { m.Labels = map[string]string{"a": "c"} }, 1},
		"its deletion":                 {nil, func(m *clusterv1.Machine) { m.DeletionTimestamp = &metav1.Time{Time: time.Now()} }, 1},
		"its adoption":                 {nil, adopt, 1},
		"resync of an orphan":          {nil, func(m *clusterv1.Machine) { m.ResourceVersion = "1" }, 1},
		"status of one that is owned":  {adopt, func(m *clusterv1.Machine) { m.Status.Phase = "Running" }, 1},
		"release of one that is owned": {adopt, func(m *clusterv1.Machine) { m.OwnerReferences = nil }, 1},
	} {
		informers := &informertest.FakeInformers{Scheme: fakeclient.Scheme(t, clusterv1.AddToScheme)}
		informer, err := machineSetManager{cacheOnly{cache: informers}}.GetCache().GetInformer(t.Context(), &clusterv1.Machine{})
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := informer.(toolscache.SharedIndexInformer); !ok {
			t.Fatalf("Cluster API cannot look into a %T", informer)
		}
		updates := 0
		if _, err := informer.AddEventHandlerWithOptions(
			toolscache.ResourceEventHandlerFuncs{UpdateFunc: func(any, any) { updates++ }}, toolscache.HandlerOptions{}); err != nil {
			t.Fatal(err)
		}
		before := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "m", ResourceVersion: "1", Labels: map[string]string{"a": "b"},
			OwnerReferences: []metav1.OwnerReference{{Kind: "Cluster", Name: "c"}}}}
		if tc.before != nil {
			tc.before(before)
		}
		after := before.DeepCopy()
		after.ResourceVersion = "2"
		tc.change(after)
		events, err := informers.FakeInformerFor(t.Context(), &clusterv1.Machine{})
		if err != nil {
			t.Fatal(err)
		}
		if events.Update(before, after); updates != tc.want {
			t.Errorf("%s: %d events, want %d", name, updates, tc.want)
		}
	}
}

// cacheOnly is a manager that has a cache.
type cacheOnly struct {
	ctrl.Manager
	cache cache.Cache
}

func (c cacheOnly) GetCache() cache.Cache { return c.cache }
