package replicas

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// deadlineRecorder records until when the client must have read what is written.
type deadlineRecorder struct {
	*httptest.ResponseRecorder
	deadline time.Time
}

func (r *deadlineRecorder) SetWriteDeadline(deadline time.Time) error {
	r.deadline = deadline
	return nil
}

// TestRefusalMustBeRead: a client that is no replica must read its refusal in time.
func TestRefusalMustBeRead(t *testing.T) {
	w := &deadlineRecorder{ResponseRecorder: httptest.NewRecorder()}
	New(Options{ReplicaID: "a", Local: &sessions{}}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, SessionsPath, nil))
	if w.Code != http.StatusForbidden || w.deadline.IsZero() {
		t.Errorf("%d %s, deadline %v", w.Code, w.Body, w.deadline)
	}
}
