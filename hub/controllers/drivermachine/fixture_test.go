package drivermachine

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/nodedriver"
	"github.com/drover-dev/drover/hub/nodedriver/schema"
	"github.com/drover-dev/drover/hub/testenv/fakeclient"
)

// fakeDrivers has one machine at most. create is what becomes of a creation; what it has made stays until it is removed.
type fakeDrivers struct {
	nodedriver.Drivers
	create   func(ctx context.Context) error
	outlived nodedriver.Outlived
	// remove is what becomes of a removal, which succeeds without it.
	remove func(ctx context.Context) error
	// notStarted has creations end before they begin.
	notStarted    bool
	made, removed int
	exists        bool
}

func (f *fakeDrivers) Identify(context.Context, string, *managementv3.NodeDriverSpec) (string, error) {
	return "", nil
}
func (f *fakeDrivers) Outlived(context.Context, nodedriver.ID) (nodedriver.Outlived, error) {
	return f.outlived, nil
}
func (f *fakeDrivers) Forget(context.Context, nodedriver.ID) error { return nil }
func (f *fakeDrivers) Remove(ctx context.Context, _ *nodedriver.Machine) (string, error) {
	if f.remove != nil {
		if err := f.remove(ctx); err != nil {
			return "", err
		}
	}
	f.removed++
	f.exists = false
	return "", nil
}

// Create removes what there is by the state, as the real ones do.
func (f *fakeDrivers) Create(ctx context.Context, m *nodedriver.Machine) ([]nodedriver.Address, string, error) {
	if f.notStarted {
		return nil, "", nodedriver.ErrNotStarted
	}
	if f.outlived != nodedriver.OutlivedCreation {
		if m.State.Config() != nil {
			f.exists = false
		}
		if f.exists {
			return nil, "", errors.New("a second machine")
		}
		state := &nodedriver.State{Name: m.Name, Files: map[string][]byte{"config.json": []byte(`{"Driver":{"ID":1}}`)}}
		if err := m.Save(ctx, state); err != nil {
			return nil, "", err
		}
		f.made++
		f.exists = true
	}
	return []nodedriver.Address{{Address: "192.0.2.1"}}, "", f.create(ctx)
}

// hub is a hub with a machine of the driver lab, whose Cluster has its infrastructure and whose Machine its bootstrap data.
type hub struct {
	*machines
	t     *testing.T
	infra *unstructured.Unstructured
	stop  context.CancelFunc
}

func newHub(t *testing.T, drivers nodedriver.Drivers) *hub {
	t.Helper()
	kind := schema.MachineKind("lab")
	machine := &clusterv1.Machine{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "one", UID: "machine"},
		Spec: clusterv1.MachineSpec{ClusterName: "driven", Bootstrap: clusterv1.Bootstrap{DataSecretName: ptr.To("data"),
			ConfigRef: clusterv1.ContractVersionedObjectReference{APIGroup: rkev1.GroupVersion.Group, Kind: "RKEBootstrap", Name: "one"}},
			InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: kind.Group, Kind: kind.Kind, Name: "one"}},
	}
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "driven"}}
	cluster.Status.Initialization.InfrastructureProvisioned = ptr.To(true)
	data := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "data", Labels: map[string]string{
		clusterv1.ClusterNameLabel: "driven"}}, Type: rkev1.BootstrapSecretType, Data: map[string][]byte{"value": []byte("#!/bin/sh\n")}}
	driver := &managementv3.NodeDriver{ObjectMeta: metav1.ObjectMeta{Name: "lab"}, Spec: managementv3.NodeDriverSpec{Active: true}}
	infra := object(kind)
	infra.SetNamespace("ns")
	infra.SetName("one")
	infra.SetUID("infra")
	infra.SetFinalizers([]string{Finalizer})
	infra.Object["status"] = map[string]any{} // the fake client makes it null in writes of an object without one
	infra.SetOwnerReferences([]metav1.OwnerReference{
		{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: "one", UID: "machine"},
	})
	scheme := fakeclient.Scheme(t, corev1.AddToScheme, clusterv1.AddToScheme, managementv3.AddToScheme, rkev1.AddToScheme,
		func(s *runtime.Scheme) error {
			s.AddKnownTypeWithName(kind, &unstructured.Unstructured{})
			s.AddKnownTypeWithName(kind.GroupVersion().WithKind(kind.Kind+"List"), &unstructured.UnstructuredList{})
			return nil
		})
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(machine, cluster, infra, data, driver).WithStatusSubresource(infra).Build()
	h := &hub{t: t, infra: infra, machines: &machines{Client: c, kind: kind, driver: "lab", nodeDriver: "lab", drivers: drivers}}
	h.restart()
	return h
}

// restart ends the process of the hub, with what it runs, and starts the next one.
func (h *hub) restart() {
	if h.stop != nil {
		h.stop()
		<-h.events
	}
	ctx, cancel := context.WithCancel(h.t.Context())
	h.stop = cancel
	h.events = make(chan event.GenericEvent, 10)
	h.operations = newOperations(ctx)
	if h.now == nil {
		h.now = time.Now
	}
}

// intercept has functions called in place of those of the client.
func (h *hub) intercept(funcs interceptor.Funcs) {
	h.Client = interceptor.NewClient(h.Client.(client.WithWatch), funcs)
}

// reconcile returns the condition Created, and when the next reconcile is due.
func (h *hub) reconcile() (*metav1.Condition, time.Duration) {
	h.t.Helper()
	return h.reconcileTo("Created")
}

// reconcileTo returns a condition, which is nil without a machine, and when the next reconcile is due.
func (h *hub) reconcileTo(condition string) (*metav1.Condition, time.Duration) {
	h.t.Helper()
	result, err := h.Reconcile(h.t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(h.infra)})
	if err != nil {
		h.t.Fatal(err)
	}
	err = h.Client.Get(h.t.Context(), client.ObjectKeyFromObject(h.infra), h.infra)
	if apierrors.IsNotFound(err) {
		return nil, result.RequeueAfter
	}
	if err != nil {
		h.t.Fatal(err)
	}
	var status machineStatus
	raw, _, err := unstructured.NestedMap(h.infra.Object, "status")
	if err == nil {
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(raw, &status)
	}
	if err != nil {
		h.t.Fatal(err)
	}
	return meta.FindStatusCondition(status.Conditions, condition), result.RequeueAfter
}

// change changes the infrastructure machine.
func (h *hub) change(change func(*unstructured.Unstructured)) {
	h.t.Helper()
	if err := h.Client.Get(h.t.Context(), client.ObjectKeyFromObject(h.infra), h.infra); err != nil {
		h.t.Fatal(err)
	}
	before := h.infra.DeepCopy()
	change(h.infra)
	if err := h.Client.Patch(h.t.Context(), h.infra, client.MergeFrom(before)); err != nil {
		h.t.Fatal(err)
	}
}

// create creates objects.
func (h *hub) create(objects ...client.Object) {
	h.t.Helper()
	for _, o := range objects {
		if err := h.Client.Create(h.t.Context(), o); err != nil {
			h.t.Fatal(err)
		}
	}
}

// delete begins the deletion of the infrastructure machine.
func (h *hub) delete() {
	h.t.Helper()
	if err := h.Client.Delete(h.t.Context(), h.infra); err != nil {
		h.t.Fatal(err)
	}
}

// force gives up on the removal by the driver.
func force(infra *unstructured.Unstructured) {
	infra.SetAnnotations(map[string]string{ForceRemoveAnnotation: "true"})
}

// joined sets the provider ID.
func joined(infra *unstructured.Unstructured) {
	infra.Object["spec"] = map[string]any{"providerID": "lab://1"}
}

// stateSecret is a machine state Secret with the files of the driver, as Rancher leaves it.
func stateSecret(t *testing.T) *corev1.Secret {
	t.Helper()
	state := &nodedriver.State{Name: "one", Files: map[string][]byte{"config.json": []byte(`{"Driver":{"ID":1,"IPAddress":"192.0.2.1"}}`)}}
	raw, err := state.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: rkev1.MachineStateSecretName("one")},
		Type: rkev1.MachineStateSecretType, Data: map[string][]byte{stateKey: raw}}
}
