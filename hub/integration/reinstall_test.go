package integration

import (
	"errors"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/hub/server/capi"
	"github.com/drover-dev/drover/hub/testenv"
)

// TestReinstall: a policy, a binding or a webhook configuration of the hub that somebody deletes is installed again. No other test, which
// may need them, runs at the same time.
func TestReinstall(t *testing.T) {
	policy, webhooks := metav1.ObjectMeta{Name: "drover-credentials"}, metav1.ObjectMeta{Name: capi.RegistrationName}
	for _, object := range []client.Object{
		&admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: policy},
		&admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: policy},
		&admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: webhooks},
		&admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: webhooks},
	} {
		key := client.ObjectKeyFromObject(object)
		if err := env.Client.Get(t.Context(), key, object); err != nil {
			t.Fatalf("%T: %v", object, err)
		}
		before := object.GetUID()
		if err := env.Client.Delete(t.Context(), object); err != nil {
			t.Fatalf("%T: %v", object, err)
		}
		testenv.Until(t, "what was deleted to be installed again", func() error {
			if err := env.Client.Get(t.Context(), key, object); err != nil {
				return err
			}
			if object.GetUID() == before {
				return errors.New("it is not deleted yet")
			}
			return nil
		})
	}
}
