package drivermachine

import (
	"context"
	"errors"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
)

// unavailable are drivers whose program cannot be had at the moment.
type unavailable struct{ *fakeDrivers }

func (unavailable) Identify(context.Context, string, *managementv3.NodeDriverSpec) (string, error) {
	return "", errors.New("the registry does not answer")
}

// TestFailureIsShown: a machine that the hub cannot go on with says why, also while it is being deleted.
func TestFailureIsShown(t *testing.T) {
	for _, condition := range []string{"Created", "Deleted"} {
		h := newHub(t, unavailable{&fakeDrivers{}})
		if condition == "Deleted" {
			h.create(stateSecret(t))
			h.delete()
		}
		_, err := h.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(h.infra)})
		if err == nil {
			t.Errorf("%s: no error", condition)
		}
		if err := h.Client.Get(t.Context(), client.ObjectKeyFromObject(h.infra), h.infra); err != nil {
			t.Fatal(err)
		}
		var status machineStatus
		raw, _, err := unstructured.NestedMap(h.infra.Object, "status")
		if err == nil {
			err = runtime.DefaultUnstructuredConverter.FromUnstructured(raw, &status)
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{condition, "Ready"} {
			c := meta.FindStatusCondition(status.Conditions, name)
			if c == nil || c.Status != metav1.ConditionFalse || c.Reason != reasonError || !strings.Contains(c.Message, "does not answer") {
				t.Errorf("%s: %s is %+v", condition, name, c)
			}
		}
	}
}

// TestRemovalWithoutCredential: where a removal fails, and the cloud credential was deleted, both are said: with the Secret it may succeed.
func TestRemovalWithoutCredential(t *testing.T) {
	h := newHub(t, &fakeDrivers{exists: true, remove: func(context.Context) error { return errors.New("unauthorized") }})
	h.change(func(infra *unstructured.Unstructured) {
		infra.Object["spec"] = map[string]any{"common": map[string]any{"cloudCredentialSecretName": "deleted"}}
	})
	h.create(stateSecret(t))
	h.delete()
	h.reconcileTo("Deleted")
	<-h.events
	c, pause := h.reconcileTo("Deleted")
	if c == nil || c.Reason != "DeleteError" || pause == 0 {
		t.Fatalf("%+v, again after %s", c, pause)
	}
	for _, part := range []string{"unauthorized", "Secret ns/deleted does not exist"} {
		if !strings.Contains(c.Message, part) {
			t.Errorf("%q is not in %q", part, c.Message)
		}
	}
}
