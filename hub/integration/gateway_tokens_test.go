package integration

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestGatewayReturningMachine: a gateway that restarts knows the tokens of the machines that come back, without a review by the API server
// for each; a token whose Secret was deleted is refused.
func TestGatewayReturningMachine(t *testing.T) {
	t.Parallel()
	var reviews atomic.Int32
	config := rest.CopyConfig(apiServer(t))
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if strings.HasSuffix(r.URL.Path, "/tokenreviews") {
				reviews.Add(1)
			}
			return next.RoundTrip(r)
		})
	})
	e := startGateway(t, config)
	e.runControllers()
	_, machine, plan := e.registered("m1")
	read := func() (int, string) {
		return e.get("/api/v1/namespaces/"+plan.Namespace+"/secrets/"+plan.Name,
			map[string]string{"Authorization": "Bearer " + machine.BearerToken})
	}
	token := &corev1.Secret{}
	var all corev1.SecretList
	if err := e.client.List(t.Context(), &all, client.InNamespace(plan.Namespace)); err != nil {
		t.Fatal(err)
	}
	for _, secret := range all.Items {
		if string(secret.Data[corev1.ServiceAccountTokenKey]) == machine.BearerToken {
			token = &secret
		}
	}
	e.stop()
	<-e.stopped
	e.serve()
	for range 3 {
		if code, body := read(); code != http.StatusOK {
			t.Errorf("the machine returns: %d %s", code, body)
		}
	}
	if got := reviews.Load(); got != 0 {
		t.Errorf("%d reviews for a machine that registers and returns", got)
	}
	if err := e.client.Delete(t.Context(), token); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the token to be refused", func() error {
		if code, body := read(); code != http.StatusUnauthorized {
			return &unexpected{code, body}
		}
		return nil
	})
}
