package gateway

import (
	"context"
	"crypto/tls"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drover-dev/drover/hub/gateway/registration"
	"github.com/drover-dev/drover/hub/identity/tokens"
)

func TestDrainIsAnnounced(t *testing.T) {
	s := newTestServer(t, "")
	get(s, "/cacerts")
	if w := get(s, "/cacerts"); w.Header().Get("Connection") != "" {
		t.Errorf("a connection is closed although nothing drains: %v", w.Header())
	}
	s.Unready()
	if w := get(s, "/healthz"); w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "stopping") {
		t.Errorf("a replica that is about to stop is well: %d %s", w.Code, w.Body)
	}
	if w := get(s, "/cacerts"); w.Code == http.StatusServiceUnavailable || w.Header().Get("Connection") != "" {
		t.Errorf("before load balancers know, a request is answered with %d %v", w.Code, w.Header())
	}
	s.Drain(time.Second)
	if w := get(s, "/cacerts"); w.Code == http.StatusServiceUnavailable || w.Header().Get("Connection") != "close" {
		t.Errorf("while it drains, a request is answered with %d %v", w.Code, w.Header())
	}
}

// TestStopEndsRegistrations: a machine that registers, and waits for what the hub is to do, is asked to come again when the hub stops.
func TestStopEndsRegistrations(t *testing.T) {
	s := newTestServer(t, "")
	s.registrants.knownSlots, s.registrants.unknownSlots = nil, nil // which are taken when caches are filled
	token, err := tokens.NewRegistrationToken()
	must(t, err)
	answered := make(chan *httptest.ResponseRecorder)
	begin := time.Now()
	go func() {
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/v3/connect/agent", nil)
		r.Header.Set("Authorization", "Bearer "+token)
		r.Header.Set("X-Cattle-Id", strings.Repeat("a", 32))
		r.Header.Set(registration.MachineSecretHeader, strings.Repeat("b", 64))
		s.handler.ServeHTTP(w, r)
		answered <- w
	}()
	select {
	case w := <-answered:
		t.Fatalf("the registration does not wait: %d %s", w.Code, w.Body)
	case <-time.After(50 * time.Millisecond):
	}
	s.drain.stop()
	if w := <-answered; w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" {
		t.Errorf("when the hub stops: %d %s, Retry-After %q", w.Code, w.Body, w.Header().Get("Retry-After"))
	}
	if took := time.Since(begin); took > 8*time.Second { // without the stop it would wait for ten
		t.Errorf("the registration ended after %s", took)
	}
}

// TestDrainSpreads looks at when watches that were open together have to go.
func TestDrainSpreads(t *testing.T) {
	d := &drainState{within: 30 * time.Second}
	quarters := [4]int{}
	for range 4000 {
		at := d.Delay()
		if at < 0 || at >= d.within {
			t.Fatalf("a watch ends after %s, want less than %s", at, d.within)
		}
		quarters[at*4/d.within]++
	}
	for i, n := range quarters {
		if n < 800 || n > 1200 {
			t.Errorf("%d of 4000 watches end in quarter %d of the time, want about 1000", n, i)
		}
	}
	if d.within = 0; d.Delay() != 0 {
		t.Error("alone, a watch waits before it ends")
	}
}

func TestWaitStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &Server{drain: newDrainState()}
		d.WaitStreams(t.Context()) // of none
		handler := d.drain.count(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { time.Sleep(time.Minute) }))
		go handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
		synctest.Wait()
		begin := time.Now()
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		d.WaitStreams(short)
		if took := time.Since(begin); took != time.Second {
			t.Errorf("a stream that goes on was waited for for %s, want a second", took)
		}
		d.WaitStreams(t.Context())
		if took := time.Since(begin); took != time.Minute {
			t.Errorf("streams ended after %s, want a minute", took)
		}
	})
}

// TestDrainEndsWatches has machines that watch their plans, as all do that have nothing to do.
func TestDrainEndsWatches(t *testing.T) {
	s, address := serveWatchers(t, 2)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}}
	watch := func(plan string) *http.Response {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
			"https://"+address+"/api/v1/namespaces/ns/secrets?watch=true&fieldSelector=metadata.name="+plan, nil)
		must(t, err)
		r.Header.Set("Authorization", "Bearer "+plan)
		response, err := client.Do(r)
		must(t, err)
		t.Cleanup(func() { _ = response.Body.Close() })
		return response
	}
	running := watch(benchName(0))
	if running.StatusCode != http.StatusOK {
		t.Fatalf("a plan cannot be watched: %s", running.Status)
	}
	const within = 500 * time.Millisecond
	begin := time.Now()
	s.Drain(within)
	if _, err := io.ReadAll(running.Body); err != nil {
		t.Errorf("the watch did not end as watches do: %v", err)
	}
	if took := time.Since(begin); took > within+time.Minute {
		t.Errorf("the watch ended after %s, want %s at the latest", took, within)
	}
	if refused := watch(benchName(1)); refused.StatusCode != http.StatusServiceUnavailable || refused.Header.Get("Retry-After") == "" {
		t.Errorf("a new watch at a replica that drains: %s, Retry-After %q", refused.Status, refused.Header.Get("Retry-After"))
	}
}
