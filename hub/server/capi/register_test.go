package capi

import (
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/drover-dev/drover/hub/testenv/fakeclient"
)

// TestUnregisterWebhooks: a hub that leaves Cluster API to another program removes its own webhooks, and nobody else's.
func TestUnregisterWebhooks(t *testing.T) {
	own, upstream := metav1.ObjectMeta{Name: RegistrationName}, metav1.ObjectMeta{Name: "capi-validating-webhook-configuration"}
	c := fake.NewClientBuilder().WithScheme(fakeclient.Scheme(t, admissionregistrationv1.AddToScheme)).WithObjects(
		&admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: own},
		&admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: own},
		&admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: upstream},
	).Build()
	for range 2 { // also where there is nothing to remove
		if err := UnregisterWebhooks(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	for _, object := range []client.Object{
		&admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: own},
		&admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: own},
	} {
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(object), object); !apierrors.IsNotFound(err) {
			t.Errorf("%T is still registered: %v", object, err)
		}
	}
	other := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	if err := c.Get(t.Context(), client.ObjectKey{Name: upstream.Name}, other); err != nil {
		t.Errorf("that of another Cluster API: %v", err)
	}
}
