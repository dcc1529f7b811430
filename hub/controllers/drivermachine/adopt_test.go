package drivermachine

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// A machine that has joined its cluster and whose state is lost is neither created again nor removed. Its deletion waits for the user.
func TestStateLost(t *testing.T) {
	for name, prepare := range map[string]func(h *hub){
		"provider ID, no Secret": func(h *hub) { h.change(joined) },
		"Node, no Secret": func(h *hub) {
			machine := &clusterv1.Machine{}
			if err := h.Client.Get(h.t.Context(), client.ObjectKeyFromObject(h.infra), machine); err != nil {
				h.t.Fatal(err)
			}
			machine.Status.NodeRef.Name = "node-1"
			if err := h.Client.Update(h.t.Context(), machine); err != nil {
				h.t.Fatal(err)
			}
		},
		"Secret without the driver's files": func(h *hub) {
			secret := stateSecret(h.t)
			secret.Data = map[string][]byte{progressKey: []byte(`{"phase":"Creating","attempt":1}`)}
			h.change(joined)
			h.create(secret)
		},
	} {
		drivers := &fakeDrivers{exists: true}
		h := newHub(t, drivers)
		prepare(h)
		if c, pause := h.reconcile(); c.Reason != "StateLost" || pause == 0 {
			t.Errorf("%s: %+v, again after %s", name, c, pause)
		}
		h.delete()
		c, pause := h.reconcileTo("Deleted")
		if c == nil || c.Reason != "StateLost" || !strings.Contains(c.Message, ForceRemoveAnnotation) || pause == 0 {
			t.Errorf("%s: deleted: %+v, again after %s", name, c, pause)
		}
		h.change(force)
		if c, _ := h.reconcileTo("Deleted"); c != nil {
			t.Errorf("%s: given up: %+v", name, c)
		}
		if drivers.made > 0 || drivers.removed > 0 || !drivers.exists {
			t.Errorf("%s: made %d, removed %d", name, drivers.made, drivers.removed)
		}
	}
}

// A machine that Rancher has created is taken as created, and is removed by what Rancher has saved of it.
func TestAdoptRancherMachine(t *testing.T) {
	for name, owners := range map[string][]metav1.OwnerReference{
		"without owner": nil,
		"owned":         {*metav1.NewControllerRef(&metav1.ObjectMeta{Name: "one", UID: "infra"}, rkev1.GroupVersion.WithKind("x"))},
	} {
		drivers := &fakeDrivers{exists: true}
		h := newHub(t, drivers)
		h.change(joined)
		secret := stateSecret(t)
		secret.OwnerReferences = owners
		h.create(secret)
		if c, _ := h.reconcile(); c.Reason != "Created" || drivers.made > 0 || drivers.removed > 0 {
			t.Errorf("%s: made %d, removed %d: %+v", name, drivers.made, drivers.removed, c)
		}
		if text := fmt.Sprint(h.infra.Object["status"]); !strings.Contains(text, "address:192.0.2.1") {
			t.Errorf("%s: %s", name, text)
		}
		if err := h.Client.Get(t.Context(), client.ObjectKeyFromObject(secret), secret); err != nil {
			t.Fatal(err)
		}
		if !metav1.IsControlledBy(secret, h.infra) || len(secret.OwnerReferences) != 1 || len(secret.Finalizers) != 1 {
			t.Errorf("%s: %+v", name, secret.ObjectMeta)
		}
		h.delete()
		h.reconcileTo("Deleted")
		<-h.events
		if c, _ := h.reconcileTo("Deleted"); c != nil || drivers.removed != 1 {
			t.Errorf("%s: removed %d, %+v", name, drivers.removed, c)
		}
		secrets := &corev1.SecretList{}
		if err := h.Client.List(t.Context(), secrets); err != nil {
			t.Fatal(err)
		}
		for _, s := range secrets.Items {
			if s.Type == rkev1.MachineStateSecretType {
				t.Errorf("%s: Secret %s is left", name, s.Name)
			}
		}
	}
}

// A machine that was removed, and whose finalizer could not be removed then, is not one whose state was lost.
func TestFinalizerIsRemovedLater(t *testing.T) {
	drivers := &fakeDrivers{exists: true}
	h := newHub(t, drivers)
	h.change(joined)
	h.create(stateSecret(t))
	h.reconcile()
	h.delete()
	h.reconcileTo("Deleted")
	<-h.events
	// As after the API server has not answered the write of the machine.
	state, _, err := h.readState(t.Context(), h.infra)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.releaseState(t.Context(), state); err != nil {
		t.Fatal(err)
	}
	if c, _ := h.reconcileTo("Deleted"); c != nil || drivers.removed != 1 {
		t.Errorf("removed %d, %+v", drivers.removed, c)
	}
}

// The state Secret of another object keeps a machine from being deleted; the user is told, and can give up on it. That Secret stays.
func TestDeleteWithForeignState(t *testing.T) {
	for reason, change := range map[string]func(*corev1.Secret){
		"StateSecretNotOwned": func(s *corev1.Secret) {
			s.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(&metav1.ObjectMeta{Name: "one", UID: "before"},
				rkev1.GroupVersion.WithKind("x"))}
		},
		"StateUnreadable": func(s *corev1.Secret) { s.Data[stateKey] = []byte("nonsense") },
	} {
		h := newHub(t, &fakeDrivers{})
		secret := stateSecret(t)
		change(secret)
		h.create(secret)
		if c, pause := h.reconcile(); c.Reason != reason || pause == 0 {
			t.Errorf("%+v, again after %s", c, pause)
		}
		h.delete()
		c, pause := h.reconcileTo("Deleted")
		if c == nil || c.Status != metav1.ConditionFalse || c.Reason != reason || pause == 0 {
			t.Errorf("%+v, again after %s", c, pause)
		}
		h.change(force)
		if c, _ := h.reconcileTo("Deleted"); c != nil {
			t.Errorf("%s: given up: %+v", reason, c)
		}
		err := h.Client.Get(t.Context(), client.ObjectKeyFromObject(secret), secret)
		if left := err == nil; left != (reason == "StateSecretNotOwned") {
			t.Errorf("%s: the Secret is left: %t, %v", reason, left, err)
		}
	}
}

// A machine that Rancher has created, and that was deleted before its NodeDriver was active, has the finalizer of Rancher alone.
func TestDeletedBeforeItWasTakenOver(t *testing.T) {
	drivers := &fakeDrivers{exists: true}
	h := newHub(t, drivers)
	h.change(joined)
	h.change(func(infra *unstructured.Unstructured) {
		infra.SetFinalizers([]string{"wrangler.cattle.io/machine-provision-remove"})
	})
	h.create(stateSecret(t))
	h.delete()
	if c, _ := h.reconcileTo("Deleted"); c == nil || c.Reason != "Deleting" {
		t.Fatalf("it is not removed: %+v", c)
	}
	<-h.events
	if c, _ := h.reconcileTo("Deleted"); c != nil || drivers.removed != 1 {
		t.Errorf("removed %d, %+v", drivers.removed, c)
	}
}
