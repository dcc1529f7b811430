package gateway

import (
	"crypto/tls"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// A watch looks at its machine's credential when that has changed, and asks the API nothing while it has not.
func TestWatchLooksWhenTheAccountChanges(t *testing.T) {
	s, address := serveWatchers(t, 1)
	var reviews atomic.Int64
	var deleted atomic.Bool
	s.opts.Client.(*fakeAPI).review = func(string) bool {
		exists := !deleted.Load() // which is set once this review is counted
		reviews.Add(1)
		return exists
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

// TestLongestWatch: a watch goes on beyond its timeout where the agent allows it, and not where the hub has to know that the agent is
// there.
func TestLongestWatch(t *testing.T) {
	s, address := serveWatchers(t, 2)
	server := benchPlan(1, 2)
	server.Labels = map[string]string{rkev1.EtcdRoleLabel: "true"}
	server.Annotations = map[string]string{rkev1.AgentLastSeenAnnotation: time.Now().UTC().Format(time.RFC3339)}
	must(t, s.secrets.Plans.Update(server))
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer transport.CloseIdleConnections()
	ended := [2]chan error{make(chan error, 1), make(chan error, 1)}
	for i, ended := range ended {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+address+"/api/v1/namespaces/"+planNamespace+
			"/secrets?watch=true&timeoutSeconds=1&fieldSelector=metadata.name="+benchName(i), nil)
		must(t, err)
		r.Header.Set("Authorization", "Bearer "+benchName(i))
		r.Header.Set("X-Drover-Longest-Watch", "3600")
		response, err := transport.RoundTrip(r)
		must(t, err)
		defer func() { _ = response.Body.Close() }()
		if response.StatusCode != http.StatusOK {
			t.Fatalf("watching %s: %s", benchName(i), response.Status)
		}
		go func() {
			_, err := io.Copy(io.Discard, response.Body)
			ended <- err
		}()
	}
	must(t, receive(t, ended[1]))
	select {
	case err := <-ended[0]:
		t.Errorf("the watch of a worker has ended: %v", err)
	case <-time.After(time.Second):
	}
}

func receive[T any](t *testing.T, from <-chan T) (received T) {
	t.Helper()
	select {
	case received = <-from:
	case <-time.After(10 * time.Second):
		t.Fatal("nothing comes")
	}
	return received
}
