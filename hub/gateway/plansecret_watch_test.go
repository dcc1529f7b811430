package gateway

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
)

// deadlineRecorder keeps the bound under which each part was written, and the one that is left.
type deadlineRecorder struct {
	*httptest.ResponseRecorder
	deadline time.Time
	bounded  []bool
}

func (r *deadlineRecorder) SetWriteDeadline(deadline time.Time) error {
	r.deadline = deadline
	return nil
}

func (r *deadlineRecorder) Write(p []byte) (int, error) {
	r.bounded = append(r.bounded, !r.deadline.IsZero())
	return r.ResponseRecorder.Write(p)
}

// A watch with nothing to say for longer than one answer may take was cut off.
func TestQuietStreamStaysOpen(t *testing.T) {
	w := &deadlineRecorder{ResponseRecorder: httptest.NewRecorder()}
	stream := &eventStream{w: w, control: http.NewResponseController(w), mayRead: func(*corev1.Secret) bool { return true }}
	writeWithin(w, answerTimeout) // as the server does for every request
	if err := stream.begin(); err != nil {
		t.Fatal(err)
	}
	if !w.deadline.IsZero() {
		t.Errorf("the stream would end at %v without an event", w.deadline)
	}
	if err := stream.send(planEvent{Type: "BOOKMARK", Version: 7}); err != nil {
		t.Fatal(err)
	}
	if len(w.bounded) != 1 || !w.bounded[0] {
		t.Errorf("an event must be written within a bound: %v", w.bounded)
	}
	if !w.deadline.IsZero() {
		t.Errorf("the stream would end at %v after an event", w.deadline)
	}
}

// A watch looks at its machine's credential when that has changed, and asks the API nothing while it has not.
func TestWatchLooksWhenTheAccountChanges(t *testing.T) {
	s, address := serveWatchers(t, 1)
	known := s.machines.review
	var reviews atomic.Int64
	var deleted atomic.Bool
	s.machines.review = func(ctx context.Context, token string) (authenticationv1.UserInfo, bool, error) {
		reviews.Add(1)
		if deleted.Load() {
			return authenticationv1.UserInfo{}, false, nil
		}
		return known(ctx, token)
	}
	told, ended := make(chan struct{}, 1), make(chan error, 1)
	go func() { ended <- watchPlanAt(address, 0, func() {}, func() { told <- struct{}{} }) }()
	receive(t, told)
	if n := reviews.Load(); n != 1 {
		t.Fatalf("a watch that begins has its token reviewed %d times", n)
	}
	s.sources.changed.notify(accountSubject(planKey.Namespace, benchName(0)))
	for deadline := time.Now().Add(10 * time.Second); reviews.Load() < 2; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the token is not reviewed when its account has changed")
		}
	}
	deleted.Store(true)
	s.sources.changed.notify(accountSubject(planKey.Namespace, benchName(0)))
	receive(t, ended)
	if n := reviews.Load(); n != 3 {
		t.Errorf("two changes had the token reviewed %d times", n-1)
	}
}

func receive[T any](t *testing.T, from <-chan T) {
	t.Helper()
	select {
	case <-from:
	case <-time.After(10 * time.Second):
		t.Fatal("nothing comes")
	}
}
