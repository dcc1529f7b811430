package clusteragent

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/drover-dev/drover/hub/access/tunnel"
)

func TestRequestsOfUsers(t *testing.T) {
	hub := newHub(t, 1)
	start(t, hub, kubernetes(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.URL.Path) }))
	eventually(t, "the agent is connected", func() bool { return hub.connected() == 1 })
	client := hub.client(t)
	var working sync.WaitGroup
	for user := range 32 {
		working.Go(func() {
			for i := range 20 {
				path := fmt.Sprintf("/api/v1/%d/%d", user, i)
				if got, err := get(t, client, path); got != path || err != nil {
					t.Errorf("%q, %v", got, err)
					return
				}
			}
		})
	}
	working.Wait()
	if n := hub.exchanges.Load(); n != 1 {
		t.Errorf("the agent registered %d times", n)
	}
}

// Megabytes go each way at once, more than any buffer on the way holds, while small requests come through.
func TestBulk(t *testing.T) {
	const size = 64 << 20
	download := make([]byte, size)
	_, _ = rand.Read(download)
	hub := newHub(t, 1)
	start(t, hub, kubernetes(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/download":
			_, _ = w.Write(download)
		case "/upload":
			sum := sha256.New()
			_, _ = io.Copy(sum, r.Body)
			fmt.Fprintf(w, "%x", sum.Sum(nil))
		}
	}))
	eventually(t, "the agent is connected", func() bool { return hub.connected() == 1 })
	client := hub.client(t)
	want := fmt.Sprintf("%x", sha256.Sum256(download))
	var working sync.WaitGroup
	working.Go(func() {
		got, err := get(t, client, "/download")
		if sum := fmt.Sprintf("%x", sha256.Sum256([]byte(got))); sum != want || err != nil {
			t.Errorf("of the download came %d bytes, %v", len(got), err)
		}
	})
	working.Go(func() {
		r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://kube-api/upload", bytes.NewReader(download))
		r.Header.Set("Impersonate-User", "anna")
		response, err := client.Do(r)
		if err != nil {
			t.Error(err)
			return
		}
		defer response.Body.Close()
		if got, _ := io.ReadAll(response.Body); string(got) != want {
			t.Errorf("the upload arrived as %s, want %s", got, want)
		}
	})
	working.Go(func() {
		for range 50 {
			if _, err := get(t, client, "/small"); err != nil {
				t.Error(err)
				return
			}
		}
	})
	working.Wait()
}

// An echo holds back what it gets until what it sends is read, so that both directions fill up.
func TestUpgradedConnections(t *testing.T) {
	hub := newHub(t, 1)
	ended := make(chan struct{}, 1)
	start(t, hub, kubernetes(t, func(w http.ResponseWriter, r *http.Request) {
		ws, err := (&websocket.Upgrader{Subprotocols: []string{"v5.channel.k8s.io"}}).Upgrade(w, r, nil)
		if err != nil {
			return
		}
		defer ws.Close()
		for {
			kind, message, err := ws.ReadMessage()
			if err != nil || ws.WriteMessage(kind, message) != nil {
				ended <- struct{}{}
				return
			}
		}
	}))
	eventually(t, "the agent is connected", func() bool { return hub.connected() == 1 })
	dialer := websocket.Dialer{NetDialContext: hub.dial, Subprotocols: []string{"v5.channel.k8s.io"}}
	ws, _, err := dialer.DialContext(t.Context(), "ws://kube-api/api/v1/namespaces/x/pods/y/exec", http.Header{"Impersonate-User": {"anna"}})
	if err != nil {
		t.Fatal(err)
	}
	want := []byte(strings.Repeat("0123456789abcdef", 4096))
	const messages = 500
	go func() {
		for range messages {
			if ws.WriteMessage(websocket.BinaryMessage, want) != nil {
				return
			}
		}
	}()
	_ = ws.SetReadDeadline(time.Now().Add(2 * time.Minute))
	for i := range messages {
		if _, got, err := ws.ReadMessage(); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("message %d: %d bytes, %v", i, len(got), err)
		}
	}
	_ = ws.Close()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Error("the cluster does not see that the user has gone")
	}
}

func TestARevokedCredentialIsReplaced(t *testing.T) {
	hub := newHub(t, 1)
	start(t, hub, kubernetes(t, func(http.ResponseWriter, *http.Request) {}))
	eventually(t, "the agent is connected", func() bool { return hub.connected() == 1 })
	revoked := "revoked"
	hub.valid.Store(&revoked)
	hub.replicas[0].Disconnect(func(tunnel.Agent) bool { return true }, "the credential is revoked")
	eventually(t, "it is connected with another credential", func() bool { return hub.exchanges.Load() == 2 && hub.connected() == 1 })
}

// A replica is drained while users ask all the time. The agent has a session to another one by then, and looks for a third.
func TestADrainedReplica(t *testing.T) {
	hub := newHub(t, 3)
	start(t, hub, kubernetes(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") }))
	eventually(t, "the agent is connected to two replicas", func() bool { return hub.connected() == 2 })
	ctx, cancel := context.WithCancel(t.Context())
	var watching sync.WaitGroup
	var gaps atomic.Int64
	watching.Go(func() {
		for ; ctx.Err() == nil; time.Sleep(time.Millisecond) {
			if hub.connected() == 0 {
				gaps.Add(1)
			}
		}
	})
	drained := hub.replicas[0]
	drained.Drain(t.Context(), 10*time.Millisecond)
	eventually(t, "the agent is connected to two other replicas", func() bool { return hub.connected() == 2 && !drained.Connected(cluster) })
	if got, err := get(t, hub.client(t), "/"); got != "ok" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	cancel()
	watching.Wait()
	if n := gaps.Load(); n != 0 {
		t.Errorf("for %d ms there was no session", n)
	}
}

func TestNothingIsLeft(t *testing.T) {
	before := runtime.NumGoroutine()
	func() {
		hub := newHub(t, 2)
		api := kubernetes(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") })
		stop := start(t, hub, api)
		eventually(t, "the agent is connected", func() bool { return hub.connected() == 2 })
		client := hub.client(t)
		client.Transport.(*http.Transport).DisableKeepAlives = true // a stream for each request
		for range 50 {
			if _, err := get(t, client, "/"); err != nil {
				t.Fatal(err)
			}
		}
		stop()
		eventually(t, "the hub sees that the agent has gone", func() bool { return hub.connected() == 0 })
		client.CloseIdleConnections()
		hub.web.Close()
	}()
	eventually(t, "no goroutine is left but of the Kubernetes API's server", func() bool { return runtime.NumGoroutine() <= before+8 })
}
