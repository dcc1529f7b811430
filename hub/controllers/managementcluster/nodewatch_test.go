package managementcluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/drover-dev/drover/hub/access/tunnelaccess"
)

// api is an API server with a version and Nodes, and counts what it is asked.
type api struct {
	*httptest.Server
	versions, lists, watches, refused atomic.Int32
	forbidden, silent                 atomic.Bool
	events                            chan string
}

const node = `{"apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadata","metadata":{"name":%q,"resourceVersion":%q}}`

func newAPI(t *testing.T) *api {
	a := &api{events: make(chan string)}
	mux := http.NewServeMux()
	mux.HandleFunc("/version", func(w http.ResponseWriter, _ *http.Request) {
		a.versions.Add(1)
		if a.silent.Load() {
			http.Error(w, "no API server", http.StatusBadGateway)
			return
		}
		_, _ = fmt.Fprint(w, `{"major":"1","minor":"36","gitVersion":"v1.36.3+k3s1"}`)
	})
	mux.HandleFunc("/api/v1/nodes", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if a.forbidden.Load() {
			a.refused.Add(1)
			w.WriteHeader(http.StatusForbidden)
			_ = json.NewEncoder(w).Encode(map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden",
				"code": 403, "message": "no"})
			return
		}
		if r.URL.Query().Get("watch") == "" {
			a.lists.Add(1)
			_, _ = fmt.Fprintf(w, `{"apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadataList","metadata":{"resourceVersion":"1"},"items":[`+
				node+`]}`, "a", "1")
			return
		}
		a.watches.Add(1)
		w.(http.Flusher).Flush()
		for {
			select {
			case event := <-a.events:
				_, _ = fmt.Fprintln(w, event)
				w.(http.Flusher).Flush()
			case <-r.Context().Done():
				return
			}
		}
	})
	a.Server = httptest.NewServer(mux)
	t.Cleanup(a.Close)
	return a
}

// watching returns what tells of changes, after the first look at a cluster.
func watching(t *testing.T, a *api, uncountedRetry time.Duration) (*nodeWatchers, chan string) {
	t.Helper()
	changed := make(chan string, 100)
	w := &nodeWatchers{uncountedRetry: uncountedRetry, unreachableAfter: 100 * time.Millisecond}
	w.start(t.Context(), func(name string) *rest.Config { return &rest.Config{Host: a.URL, UserAgent: name} },
		func(name string) { changed <- name })
	w.watch("c-m-a")
	t.Cleanup(func() { w.stop("c-m-a") })
	return w, changed
}

func await(t *testing.T, w *nodeWatchers, changed chan string, what string, met func(observation) bool) {
	t.Helper()
	deadline := time.After(20 * time.Second)
	for !met(w.watch("c-m-a")) {
		select {
		case name := <-changed:
			if name != "c-m-a" {
				t.Fatalf("told of %s", name)
			}
		case <-deadline:
			t.Fatalf("%s was not seen: %+v", what, w.watch("c-m-a"))
		}
	}
}

func TestNodeWatch(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	w, changed := watching(t, a, 0)
	await(t, w, changed, "one Node", func(f observation) bool {
		return f.version != nil && f.version.GitVersion == "v1.36.3+k3s1" && f.counted && f.nodes == 1
	})
	a.events <- fmt.Sprintf(`{"type":"ADDED","object":`+node+`}`, "b", "2")
	await(t, w, changed, "a second Node", func(f observation) bool { return f.nodes == 2 })
	a.events <- fmt.Sprintf(`{"type":"MODIFIED","object":`+node+`}`, "b", "3")
	a.events <- fmt.Sprintf(`{"type":"DELETED","object":`+node+`}`, "a", "4")
	await(t, w, changed, "one Node again", func(f observation) bool { return f.nodes == 1 })
	if lists, watches := a.lists.Load(), a.watches.Load(); lists != 1 || watches != 1 {
		t.Errorf("asked for %d lists and %d watches, want one of each", lists, watches)
	}
	if versions := a.versions.Load(); versions > 3 {
		t.Errorf("asked for the version %d times", versions)
	}
	// What has changed may be seen before its call, and calls before those that were waited for may not have been read.
	for pending := true; pending; {
		select {
		case <-changed:
		case <-time.After(200 * time.Millisecond):
			pending = false
		}
	}
	w.stop("c-m-a")
	select {
	case <-changed:
		t.Error("told of a change after the end")
	case <-time.After(200 * time.Millisecond):
	}
}

// TestUnreachableAPI: an API that does not answer any more is seen while the agent stays connected, and so is that it answers again.
func TestUnreachableAPI(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	w, changed := watching(t, a, 0)
	a.events <- fmt.Sprintf(`{"type":"ADDED","object":`+node+`}`, "b", "2") // once the watch has begun
	await(t, w, changed, "the watch", func(f observation) bool { return f.reached && f.nodes == 2 && f.unreachableSince.IsZero() })
	a.silent.Store(true)
	a.CloseClientConnections()
	await(t, w, changed, "the silence", func(f observation) bool { return f.version != nil && !f.unreachableSince.IsZero() })
	a.silent.Store(false)
	await(t, w, changed, "an answer", func(f observation) bool { return f.unreachableSince.IsZero() })
}

// TestEndlessVersion: of an answer without an end, which a hostile agent may give, no more is read than a version takes.
func TestEndlessVersion(t *testing.T) {
	cut := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		defer close(cut)
		for piece := make([]byte, 32<<10); ; {
			if _, err := w.Write(piece); err != nil {
				return
			}
		}
	}))
	defer server.Close()
	versions, err := newVersionClient(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	w := &nodeWatcher{changed: func() { t.Error("a version was read") }}
	if err := w.readVersion(t.Context(), versions); !errors.As(err, new(*tunnelaccess.BodyLimitError)) {
		t.Errorf("reading an endless version: %v", err)
	}
	<-cut
}

// TestNodeWatchForbidden: a cluster whose version can be read is ready, and a watch of Nodes that is forbidden is not retried at once.
func TestNodeWatchForbidden(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	a.forbidden.Store(true)
	w, changed := watching(t, a, 0)
	await(t, w, changed, "the version", func(f observation) bool { return f.version != nil && !f.counted })
	time.Sleep(3 * time.Second)
	if versions := a.versions.Load(); versions > 3 {
		t.Errorf("asked for the version %d times", versions)
	}
}

// TestNodeWatchForbiddenAtFirst: an API server that is starting may forbid what it allows later. Its Nodes are counted then, without
// another connection of its agent.
func TestNodeWatchForbiddenAtFirst(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	a.forbidden.Store(true)
	w, changed := watching(t, a, 100*time.Millisecond)
	for deadline := time.Now().Add(20 * time.Second); a.refused.Load() == 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("Nodes were not requested")
		}
	}
	a.forbidden.Store(false)
	await(t, w, changed, "one Node", func(f observation) bool { return f.version != nil && f.counted && f.nodes == 1 })
}
