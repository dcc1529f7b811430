package replicas

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/drover-dev/drover/hub/testenv/recorder"
)

// TestRefusalMustBeRead: a client that is no replica must read its refusal in time.
func TestRefusalMustBeRead(t *testing.T) {
	w := recorder.New()
	New(Options{ReplicaID: "a", Local: &sessions{}}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, SessionsPath, nil))
	if w.Code != http.StatusForbidden || w.Deadline.IsZero() {
		t.Errorf("%d %s, deadline %v", w.Code, w.Body, w.Deadline)
	}
}
