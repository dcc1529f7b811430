package drivermachine

import (
	"context"
	"errors"
	"strings"
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
	outlived bool
	made     int
	exists   bool
}

func (f *fakeDrivers) Identify(context.Context, string, *managementv3.NodeDriverSpec) (string, error) {
	return "", nil
}
func (f *fakeDrivers) Outlived(context.Context, nodedriver.ID) (bool, error) { return f.outlived, nil }

// Create removes what there is by the state, as the real ones do.
func (f *fakeDrivers) Create(ctx context.Context, m *nodedriver.Machine) ([]nodedriver.Address, string, error) {
	if m.State.Config() != nil && !f.outlived {
		f.exists = false
	}
	if !f.outlived {
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
		Spec: clusterv1.MachineSpec{ClusterName: "driven", Bootstrap: clusterv1.Bootstrap{DataSecretName: ptr.To("data")},
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
	h.operations = &operations{running: map[types.UID]*operation{}, parent: ctx}
	if h.now == nil {
		h.now = time.Now
	}
}

// reconcile returns the condition Created, and when the next reconcile is due.
func (h *hub) reconcile() (*metav1.Condition, time.Duration) {
	h.t.Helper()
	result, err := h.Reconcile(h.t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(h.infra)})
	if err != nil {
		h.t.Fatal(err)
	}
	if err := h.Client.Get(h.t.Context(), client.ObjectKeyFromObject(h.infra), h.infra); err != nil {
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
	return meta.FindStatusCondition(status.Conditions, "Created"), result.RequeueAfter
}

// The fifth failure is final. Each attempt comes after the pause that the one before it has told, and after the removal of its machine.
func TestAttempts(t *testing.T) {
	drivers := &fakeDrivers{create: func(context.Context) error { return errors.New("quota exceeded") }}
	h := newHub(t, drivers)
	now := time.Now()
	h.now = func() time.Time { return now }
	for attempt := 1; attempt <= maxAttempts; attempt++ {
		if c, _ := h.reconcile(); c.Reason != "Creating" {
			t.Fatalf("attempt %d: %+v", attempt, c)
		}
		<-h.events
		c, pause := h.reconcile()
		if attempt == maxAttempts {
			if c.Reason != "CreateFailed" || !strings.Contains(c.Message, "quota exceeded") || pause != 0 {
				t.Errorf("at the end: %+v, again after %s", c, pause)
			}
			break
		}
		if c.Reason != "CreateError" || pause != backoff(attempt) {
			t.Errorf("attempt %d: %+v, again after %s", attempt, c, pause)
		}
		now = now.Add(pause - time.Second)
		if c, _ := h.reconcile(); c.Reason != "CreateError" {
			t.Errorf("before its time: %+v", c)
		}
		now = now.Add(time.Second)
	}
	now = now.Add(24 * time.Hour)
	if c, _ := h.reconcile(); c.Reason != "CreateFailed" || drivers.made != maxAttempts {
		t.Errorf("made %d: %+v", drivers.made, c)
	}
}

// A hub that ends while its own process creates a machine removes it at the next start, and begins again: there is one machine at any time.
func TestRestartOfLocalForm(t *testing.T) {
	drivers := &fakeDrivers{create: func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	}}
	h := newHub(t, drivers)
	h.reconcile()
	h.restart()
	drivers.create = func(context.Context) error { return nil }
	now := time.Now().Add(time.Hour)
	h.now = func() time.Time { return now }
	h.reconcile()
	<-h.events
	state, _, err := h.readState(t.Context(), h.infra)
	if err != nil || state.progress.Phase != phaseCreated || state.progress.Attempt != 2 || !drivers.exists || drivers.made != 2 {
		t.Errorf("%v, %+v, made %d", err, state.progress, drivers.made)
	}
}

// A hub that ends while a Job creates a machine writes no outcome, and the next one waits for the Job: no attempt is counted again.
func TestRestartOfJobForm(t *testing.T) {
	drivers := &fakeDrivers{create: func(ctx context.Context) error {
		<-ctx.Done()
		return nodedriver.ErrInterrupted
	}}
	h := newHub(t, drivers)
	h.reconcile()
	h.restart()
	state, _, err := h.readState(t.Context(), h.infra)
	if err != nil || state.progress.Error != "" || state.progress.Phase != phaseCreating {
		t.Errorf("after the end: %v, %+v", err, state.progress)
	}
	drivers.create, drivers.outlived = func(context.Context) error { return nil }, true
	h.reconcile()
	<-h.events
	if state, _, err = h.readState(t.Context(), h.infra); err != nil || state.progress.Phase != phaseCreated || state.progress.Attempt != 1 ||
		drivers.made != 1 {
		t.Errorf("%v, %+v, made %d", err, state.progress, drivers.made)
	}
}
