package capi

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
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
