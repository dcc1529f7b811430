package drivermachine

import (
	"context"
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/nodedriver"
)

// registeredBootstrap is the RKEBootstrap of a Machine whose machine has registered.
func registeredBootstrap(machine types.UID) *rkev1.RKEBootstrap {
	return &rkev1.RKEBootstrap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "one", UID: "bootstrap",
		Annotations: map[string]string{rkev1.MachineSecretHashAnnotation: "ff", "kept": "x"},
		OwnerReferences: []metav1.OwnerReference{
			{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: "one", UID: machine},
		}}}
}

// hash is that of the machine that has registered.
func (h *hub) hash() string {
	h.t.Helper()
	bootstrap := &rkev1.RKEBootstrap{}
	if err := h.Client.Get(h.t.Context(), client.ObjectKeyFromObject(h.infra), bootstrap); err != nil {
		h.t.Fatal(err)
	}
	if bootstrap.Annotations["kept"] != "x" {
		h.t.Errorf("annotations are gone: %v", bootstrap.Annotations)
	}
	return bootstrap.Annotations[rkev1.MachineSecretHashAnnotation]
}

// registering looks at the registration when a machine is removed.
type registering struct {
	*fakeDrivers
	hub *hub
	// whenRemoved is the hash at that time.
	whenRemoved []string
}

func (r *registering) Remove(ctx context.Context, m *nodedriver.Machine) (string, error) {
	r.whenRemoved = append(r.whenRemoved, r.hub.hash())
	return r.fakeDrivers.Remove(ctx, m)
}

// The machine of an attempt that has registered before it failed leaves its place to that of the next attempt, once it is removed.
func TestNextAttemptRegisters(t *testing.T) {
	drivers := &registering{fakeDrivers: &fakeDrivers{}}
	h := newHub(t, drivers)
	drivers.hub = h
	now := time.Now()
	h.now = func() time.Time { return now }
	bootstrap := registeredBootstrap("machine")
	delete(bootstrap.Annotations, rkev1.MachineSecretHashAnnotation)
	h.create(bootstrap)
	var before []string
	drivers.fakeDrivers.create = func(ctx context.Context) error {
		before = append(before, h.hash())
		if len(before) > 1 {
			return nil
		}
		first := bootstrap.DeepCopy()
		metav1.SetMetaDataAnnotation(&first.ObjectMeta, rkev1.MachineSecretHashAnnotation, "ff")
		return errors.Join(h.Client.Patch(ctx, first, client.MergeFrom(bootstrap)), errors.New("systemctl: failed"))
	}
	h.reconcile()
	<-h.events
	_, pause := h.reconcile()
	if h.hash() != "ff" || drivers.removed != 0 {
		t.Fatalf("after the first attempt the hash is %q, removed %d", h.hash(), drivers.removed)
	}
	now = now.Add(pause)
	h.reconcile()
	<-h.events
	if len(before) != 2 || before[1] != "" || len(drivers.whenRemoved) != 1 || drivers.whenRemoved[0] != "ff" || !drivers.exists {
		t.Errorf("the hash was %q before each attempt, %q when the machine was removed", before, drivers.whenRemoved)
	}
	if c, _ := h.reconcile(); c.Reason != "Created" {
		t.Errorf("%+v", c)
	}
}

// The registration of another's RKEBootstrap, and that of a Node, stay.
func TestClearRegistration(t *testing.T) {
	for name, tt := range map[string]struct {
		owner       types.UID
		node        string
		hash        string
		wantRefusal bool
	}{
		"its own":         {owner: "machine"},
		"another's":       {owner: "another", hash: "ff"},
		"that has a Node": {owner: "machine", node: "node-1", hash: "ff", wantRefusal: true},
	} {
		h := newHub(t, &fakeDrivers{})
		h.create(registeredBootstrap(tt.owner))
		machine := &clusterv1.Machine{}
		if err := h.Client.Get(t.Context(), client.ObjectKeyFromObject(h.infra), machine); err != nil {
			t.Fatal(err)
		}
		machine.Status.NodeRef.Name = tt.node
		if err := h.Client.Update(t.Context(), machine); err != nil {
			t.Fatal(err)
		}
		if err := h.clearRegistration(t.Context(), machine); (err != nil) != tt.wantRefusal {
			t.Errorf("%s: %v", name, err)
		}
		if got := h.hash(); got != tt.hash {
			t.Errorf("%s: the hash is %q, want %q", name, got, tt.hash)
		}
	}
}
