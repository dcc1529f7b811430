package gateway

import (
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// A watch looks at its machine's credential when that has changed, and asks the API nothing while it has not.
func TestWatchLooksWhenTheAccountChanges(t *testing.T) {
	s, address := serveWatchers(t, 1)
	var reviews atomic.Int64
	var deleted atomic.Bool
	s.opts.Client.(*fakeAPI).review = func(string) bool {
		reviews.Add(1)
		return !deleted.Load()
	}
	account := types.NamespacedName{Namespace: planNamespace, Name: benchName(0)}
	received, ended := make(chan struct{}, 1), make(chan error, 1)
	go func() { ended <- watchPlanAt(address, 0, func() {}, func() { received <- struct{}{} }) }()
	receive(t, received)
	if n := reviews.Load(); n != 1 {
		t.Fatalf("a watch that begins has its token reviewed %d times", n)
	}
	s.secrets.AccountChanged(account)
	for deadline := time.Now().Add(10 * time.Second); reviews.Load() < 2; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the token is not reviewed when its account has changed")
		}
	}
	deleted.Store(true)
	s.secrets.AccountChanged(account)
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
