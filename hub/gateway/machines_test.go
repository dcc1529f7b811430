package gateway

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/drover-dev/drover/plans"
)

// stalledMachine reads of the answers to its requests only those that refuse one.
type stalledMachine struct {
	*httptest.ResponseRecorder
	stall func()
}

func (m stalledMachine) Write(p []byte) (int, error) {
	if m.Code == http.StatusOK {
		m.stall()
	}
	return len(p), nil
}

// TestRequestsOfOneMachine has a machine that sends many requests at once and does not read the answers: most are refused, and those of
// other machines are answered.
func TestRequestsOfOneMachine(t *testing.T) {
	const requests = 100
	for name, tt := range map[string]struct {
		path string
		want int
	}{
		"requests": {"secrets/", maxMachineRequests},
		"watches":  {"secrets?watch=true&fieldSelector=metadata.name=", 2 * maxMachineWatches},
	} {
		t.Run(name, func(t *testing.T) {
			s := newTestServer(t, "")
			large := benchPlan(0, 1)
			large.Data[plans.KeyPlan] = make([]byte, 1<<20)
			must(t, s.secrets.Plans.Replace([]any{large, benchPlan(1, 1)}, "1"))
			ctx, cancel := context.WithCancel(t.Context())
			stalled, proceed := make(chan struct{}, requests+1), make(chan struct{})
			refused := make(chan *httptest.ResponseRecorder, requests)
			var all sync.WaitGroup
			send := func(plan string) {
				all.Go(func() {
					r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/api/v1/namespaces/"+planNamespace+"/"+tt.path+plan, nil)
					r.Header.Set("Authorization", "Bearer "+plan)
					w := stalledMachine{httptest.NewRecorder(), sync.OnceFunc(func() { stalled <- struct{}{}; <-proceed })}
					if s.handler.ServeHTTP(w, r); w.Code != http.StatusOK {
						refused <- w.ResponseRecorder
					}
				})
			}
			defer all.Wait()
			defer cancel()
			defer close(proceed)
			for range requests {
				send(benchName(0))
			}
			for range requests - tt.want {
				if w := receive(t, refused); w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") == "" {
					t.Errorf("a request beyond the limit: %d %v", w.Code, w.Header())
				}
			}
			for range tt.want {
				receive(t, stalled)
			}
			send(benchName(1))
			receive(t, stalled)
		})
	}
}

// TestWritesOfOneMachine has a machine that writes all the time: it is refused after a while, and others are not.
func TestWritesOfOneMachine(t *testing.T) {
	s := newTestServer(t, "")
	write := func(plan string) *httptest.ResponseRecorder {
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodPut, "/api/v1/namespaces/"+planNamespace+"/secrets/"+plan, nil)
		r.Header.Set("Authorization", "Bearer "+plan)
		s.handler.ServeHTTP(w, r)
		return w
	}
	writes := 0
	for ; writes <= 2*writeBurst; writes++ {
		w := write(benchName(0))
		if w.Code == http.StatusTooManyRequests && w.Header().Get("Retry-After") != "" {
			break
		}
		if w.Code != http.StatusBadRequest { // it has no body
			t.Fatalf("write %d: %d %s", writes, w.Code, w.Body)
		}
	}
	if writes < writeBurst || writes > 2*writeBurst {
		t.Errorf("refused after %d writes, want some %d", writes, writeBurst)
	}
	if w := write(benchName(1)); w.Code != http.StatusBadRequest {
		t.Errorf("another machine: %d %s", w.Code, w.Body)
	}
}
