package drivermachine

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/nodedriver/schema"
	"github.com/drover-dev/drover/hub/testenv/fakeclient"
)

// A creation that ends while its state is read has not failed: the machine is not created again.
func TestCreationEndsDuringReconcile(t *testing.T) {
	kind := schema.MachineKind("lab")
	machine := &clusterv1.Machine{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "one", UID: "machine"},
		Spec: clusterv1.MachineSpec{ClusterName: "driven", Bootstrap: clusterv1.Bootstrap{DataSecretName: ptr.To("data")},
			InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: kind.Group, Kind: kind.Kind, Name: "one"}},
	}
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "driven"}}
	cluster.Status.Initialization.InfrastructureProvisioned = ptr.To(true)
	infra := object(kind)
	infra.SetNamespace("ns")
	infra.SetName("one")
	infra.SetUID("infra")
	infra.SetFinalizers([]string{Finalizer})
	infra.SetOwnerReferences([]metav1.OwnerReference{
		{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: "one", UID: "machine"},
	})

	m := &machines{kind: kind, driver: "lab", nodeDriver: "lab", now: time.Now}
	m.operations = &operations{running: map[types.UID]*operation{"infra": {}}, parent: t.Context()}
	secret := m.newStateSecret(infra)
	secret.Data = map[string][]byte{progressKey: []byte(`{"phase":"Creating","attempt":1}`)}

	scheme := fakeclient.Scheme(t, corev1.AddToScheme, clusterv1.AddToScheme, managementv3.AddToScheme, rkev1.AddToScheme,
		func(s *runtime.Scheme) error {
			s.AddKnownTypeWithName(kind, &unstructured.Unstructured{})
			s.AddKnownTypeWithName(kind.GroupVersion().WithKind(kind.Kind+"List"), &unstructured.UnstructuredList{})
			return nil
		})
	m.Client = fake.NewClientBuilder().WithScheme(scheme).WithObjects(machine, cluster, infra, secret).WithStatusSubresource(infra).
		WithInterceptorFuncs(interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
				err := c.Get(ctx, key, o, opts...)
				if _, isState := o.(*corev1.Secret); isState && key.Name == secret.Name {
					m.operations.running = map[types.UID]*operation{}
				}
				return err
			},
		}).Build()

	if _, err := m.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(infra)}); err != nil {
		t.Fatal(err)
	}
	if err := m.Client.Get(t.Context(), client.ObjectKeyFromObject(infra), infra); err != nil {
		t.Fatal(err)
	}
	var status machineStatus
	raw, _, _ := unstructured.NestedMap(infra.Object, "status")
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(raw, &status); err != nil {
		t.Fatal(err)
	}
	created := meta.FindStatusCondition(status.Conditions, "Created")
	if created == nil || created.Reason != "Creating" || len(m.operations.running) > 0 {
		t.Errorf("the machine is created again: %+v", created)
	}
}
