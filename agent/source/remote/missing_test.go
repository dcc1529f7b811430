package remote

import (
	"errors"
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-dev/drover/agent/source"
	"github.com/drover-dev/drover/agent/testenv/testhub"
	"github.com/drover-dev/drover/plans"
)

// Only the API can say that the plan Secret does not exist: a 404 of a proxy without a route to the hub is an error, after which the report
// is sent again.
func TestOnlyTheAPISupersedes(t *testing.T) {
	status := func(w http.ResponseWriter) {
		testhub.WriteStatus(w, http.StatusNotFound, metav1.StatusReasonNotFound, `secrets "plan" not found`)
	}
	text := func(w http.ResponseWriter) { http.Error(w, "404 page not found", http.StatusNotFound) }
	for _, test := range []struct {
		name, method string
		answer       func(http.ResponseWriter)
		superseded   bool
	}{
		{"a write, answered by the API", http.MethodPut, status, true},
		{"a write, answered by a proxy", http.MethodPut, text, false},
		{"a read, answered by the API", http.MethodGet, status, true},
		{"a read, answered by a proxy", http.MethodGet, text, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			h, s, checksum := deliverEmpty(t)
			h.SetFault(func(w http.ResponseWriter, r *http.Request) bool {
				if r.Method != test.method {
					return false
				}
				test.answer(w)
				return true
			})
			h.BeforePut = func() { h.ChangeLocked(func(*corev1.Secret) {}) } // a conflict, after which the Secret is read
			_, err := s.Update(t.Context(), "uid-1", checksum, func(s *plans.Status) { s.AppliedChecksum = checksum })
			if err == nil || errors.Is(err, source.ErrSuperseded) != test.superseded {
				t.Errorf("got %v", err)
			}
		})
	}
}

// A Secret of another name or namespace is not used, wherever the hub sends it: its name is what the signature of a plan is compared with.
func TestOtherSecretsAreIgnored(t *testing.T) {
	for name, rename := range map[string]func(*corev1.Secret){
		"another name":      func(secret *corev1.Secret) { secret.Name = "other" },
		"another namespace": func(secret *corev1.Secret) { secret.Namespace = "other" },
	} {
		t.Run(name, func(t *testing.T) {
			h, s, _ := deliverEmpty(t)
			h.Change(func(secret *corev1.Secret) {
				rename(secret)
				plans.Deliver(secret.Data, []byte(`{"other":1}`), 1, 0)
			})
			if got, err := s.Get(t.Context()); err == nil {
				t.Errorf("it was read: %+v", got)
			}
			if _, err := s.Update(t.Context(), "uid-1", plans.Checksum([]byte(`{"other":1}`)), func(*plans.Status) {}); err == nil {
				t.Error("it was updated")
			}
			h.EndWatches() // the list that follows has it, too
			h.Change(func(secret *corev1.Secret) {
				secret.Name, secret.Namespace = "plan", "fleet-default"
				plans.Deliver(secret.Data, []byte(`{"later":1}`), 1, 0)
			})
			for plan := ""; plan != `{"later":1}`; {
				snapshot := <-s.Updates()
				if plan = string(snapshot.Delivery.Plan); plan == `{"other":1}` || snapshot.Machine != "fleet-default/plan" {
					t.Fatalf("got %q of %s", plan, snapshot.Machine)
				}
			}
		})
	}
}
