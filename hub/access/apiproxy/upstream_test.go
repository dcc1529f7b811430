package apiproxy

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/remotecommand"

	"github.com/drover-dev/drover/hub/access/replicas"
	"github.com/drover-dev/drover/hub/access/tunnel"
)

// otherReplica forwards requests to another replica of the hub.
type otherReplica struct {
	at        http.RoundTripper
	url       *url.URL
	forwarded atomic.Int64
}

func (n *otherReplica) Owner(string) (http.RoundTripper, bool) { return n, n.url != nil }

func (n *otherReplica) RoundTrip(r *http.Request) (*http.Response, error) {
	n.forwarded.Add(1)
	out := r.Clone(r.Context())
	out.URL.Scheme, out.URL.Host = n.url.Scheme, n.url.Host
	out.Header.Set("X-Test-Peer", "yes")
	answer, err := n.at.RoundTrip(out)
	if err == nil {
		answer.Request = r
	}
	return answer, err
}

// newReplicas returns two replicas: users connect to the first one, and the cluster's agent to the second one.
func newReplicas(t *testing.T, backend http.Handler) (first, second *env, next, back *otherReplica) {
	t.Helper()
	back = &otherReplica{}
	second = newEnv(t, backend, func(o *Options) {
		o.Remote, o.FromPeer = back, func(r *http.Request) bool { return r.Header.Get("X-Test-Peer") == "yes" }
	})
	target, err := url.Parse(second.hub.URL)
	if err != nil {
		t.Fatal(err)
	}
	next = &otherReplica{at: second.client(false).Transport, url: target}
	first = newEnv(t, backend, func(o *Options) { o.Remote = next })
	first.agents.known = map[string]tunnel.Agent{}
	if back.url, err = url.Parse(first.hub.URL); err != nil {
		t.Fatal(err)
	}
	return first, second, next, back
}

// TestOtherReplica checks that a forwarded request reaches the cluster once as the user's own, and is in one audit log.
func TestOtherReplica(t *testing.T) {
	first, second, next, back := newReplicas(t, http.HandlerFunc(echoRequest))
	got := first.send(first.request("GET", "/k8s/clusters/"+connectedCluster+"/api/v1/pods?limit=1", "is-jane", "Audit-Id", "one"))
	s := got.echoed(t)
	if s.URI != "/api/v1/pods?limit=1" || s.Header.Get("Impersonate-User") != "jane" || s.Header.Get("Impersonate-Extra-Team%2fx") != "blue" ||
		s.Header.Get("Audit-Id") != "one" || s.Header.Get("X-Forwarded-For") != "127.0.0.1" || s.Header.Get("X-Drover-Identity") != "" ||
		s.Header.Get("Authorization") != "" {
		t.Errorf("the cluster sees %+v", s)
	}
	if ids := got.Header.Values("Audit-Id"); len(ids) != 1 {
		t.Errorf("the client gets Audit-ID %v", ids)
	}
	first.events("ResponseComplete", 1)
	if n := len(second.events("RequestReceived", 0)); n != 0 {
		t.Errorf("the other replica has %d events too", n)
	}
	// The agent leaves before the request arrives: it goes no further than that.
	second.agents.known = map[string]tunnel.Agent{}
	if got := first.send(first.request("GET", "/k8s/clusters/"+connectedCluster+"/api", "is-jane")); got.StatusCode != 503 ||
		got.Header.Get("Retry-After") == "" {
		t.Errorf("%s: %s", got.Status, got.body)
	}
	if next.forwarded.Load() != 2 || back.forwarded.Load() != 0 {
		t.Errorf("forwarded %d times, and back %d times", next.forwarded.Load(), back.forwarded.Load())
	}
}

// TestNewerSession checks that requests use the newest session, and no idle connections of an older one.
func TestNewerSession(t *testing.T) {
	w := newEnv(t, http.HandlerFunc(echoRequest))
	send := func() {
		w.send(w.request("GET", "/k8s/clusters/"+connectedCluster+"/api", "is-jane")).echoed(t)
	}
	for session, want := range []int{1, 2} {
		w.agents.session = int64(session)
		send()
		send()
		if got := len(w.agents.dials); got != want {
			t.Errorf("%d connections after session %d, want %d", got, session, want)
		}
	}
}

// TestConnectionOfItsSession checks that a connection belongs to the session of the route by which it is pooled, although another session
// is better when it is opened.
func TestConnectionOfItsSession(t *testing.T) {
	api := httptest.NewTLSServer(http.HandlerFunc(echoRequest))
	defer api.Close()
	address := api.Listener.Addr().String()
	for _, legacy := range []bool{false, true} {
		w := newEnv(t, http.HandlerFunc(echoRequest))
		if legacy {
			w.agents.backend = address
			w.agents.known[connectedCluster] = tunnel.Agent{Key: connectedCluster,
				Legacy: &tunnel.LegacyCluster{Address: address, Token: "downstream", CACert: pemOf(api.Certificate())}}
		}
		for _, session := range []int64{1, 2, 1} {
			w.agents.session, w.agents.next = session, 3-session
			w.send(w.request("GET", "/k8s/clusters/"+connectedCluster+"/api", "is-jane")).echoed(t)
		}
		if got := w.agents.through; !slices.Equal(got, []int64{1, 2}) {
			t.Errorf("legacy agent %t: dialed through sessions %v, want 1 and 2", legacy, got)
		}
	}
}

// TestUnresponsiveSession checks that the session of another replica is preferred to one whose agent does not respond, which is preferred
// to none.
func TestUnresponsiveSession(t *testing.T) {
	first, second, next, _ := newReplicas(t, http.HandlerFunc(echoRequest))
	first.agents.known = map[string]tunnel.Agent{connectedCluster: {Key: connectedCluster}}
	send := func() {
		first.send(first.request("GET", "/k8s/clusters/"+connectedCluster+"/api", "is-jane")).echoed(t)
	}
	send()
	if next.forwarded.Load() != 0 {
		t.Error("a session of its own is not used")
	}
	first.agents.doubtful, second.agents.doubtful = true, true
	send()
	if next.forwarded.Load() != 1 {
		t.Error("a doubtful session is preferred to another replica's")
	}
	next.url = nil
	send()
}

func TestExecThroughOtherReplica(t *testing.T) {
	first, _, _, _ := newReplicas(t, newClusterWithNode(t))
	data := bytes.Repeat([]byte("0123456789"), 50_000)
	for name, executor := range first.executors("/exec", "command=cat&stdin=1&stdout=1") {
		var out bytes.Buffer
		err := executor.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdin: bytes.NewReader(data), Stdout: &out})
		if err != nil || !bytes.Equal(out.Bytes(), data) {
			t.Errorf("%s: %d of %d bytes: %v", name, out.Len(), len(data), err)
		}
	}
}

func TestForgedForwardingHeader(t *testing.T) {
	w := newEnv(t, http.HandlerFunc(echoRequest), func(o *Options) {
		o.FromPeer = func(r *http.Request) bool { return r.Header.Get("X-Test-Peer") == "yes" }
	})
	for _, identity := range []string{"", "%", "e30=", "bm9uZQ=="} {
		got := w.send(w.request("GET", "/k8s/clusters/"+connectedCluster+"/api", "", "X-Test-Peer", "yes", "X-Drover-Identity", identity))
		if got.StatusCode != 400 || !strings.Contains(got.status.Message, "X-Drover-Identity") {
			t.Errorf("%q: %s %s", identity, got.Status, got.body)
		}
	}
}

// TestNoResponse checks the error for a request that got no response: clients are told to retry only if that is safe.
func TestNoResponse(t *testing.T) {
	hang := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	for method, want := range map[string]int{"GET": 503, "POST": 502, "DELETE": 502} {
		w := newEnv(t, hang)
		got := w.send(w.request(method, "/k8s/clusters/"+connectedCluster+"/api/v1/pods", "is-jane"))
		if retry := got.Header.Get("Retry-After"); got.StatusCode != want || (retry != "") != (want == 503) || got.status.Kind != "Status" {
			t.Errorf("%s: %s, Retry-After %q: %s", method, got.Status, retry, got.body)
		}
	}
	for unsent, want := range map[bool]int{true: 503, false: 502} {
		w := newEnv(t, hang)
		recorder := httptest.NewRecorder()
		r := w.request("POST", "/", "")
		w.handler.failed(recorder, r.WithContext(withCall(r.Context(), &call{cluster: connectedCluster, kind: ordinary,
			info: requestInfo(t, r)})),
			&replicas.LostError{Unsent: unsent})
		if recorder.Code != want {
			t.Errorf("unsent %v: %d", unsent, recorder.Code)
		}
	}
}

// TestInvalidAnswer checks what a client gets of an answer that HTTP does not allow, and that its connection is closed.
func TestInvalidAnswer(t *testing.T) {
	const other = "101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: other\r\n"
	for _, test := range []struct {
		name, answer, query string
		header              []string
	}{
		{"another protocol than the requested one", other, "", []string{"Connection", "Upgrade", "Upgrade", "websocket"}},
		{"a protocol for a watch", other, "?watch=1", nil},
		{"a protocol for an ordinary request", other, "", nil},
		{"a code below 100", "099 Odd\r\nConnection: close\r\nContent-Length: 0\r\n", "", nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			closed := make(chan struct{})
			w := newEnv(t, http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
				conn, buffered, err := http.NewResponseController(rw).Hijack()
				if err != nil {
					t.Error(err)
					return
				}
				defer func() { _ = conn.Close() }()
				_, _ = io.WriteString(conn, "HTTP/1.1 "+test.answer+"\r\n")
				_, _ = io.Copy(io.Discard, buffered)
				close(closed)
			}))
			r := w.request("GET", "/k8s/clusters/"+connectedCluster+"/api/v1/pods"+test.query, "is-jane", test.header...)
			response, err := w.client(false).Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = response.Body.Close() }()
			if body, err := io.ReadAll(response.Body); err != nil || response.StatusCode != 502 || !strings.Contains(string(body), "is invalid") {
				t.Errorf("%s: %s, %v", response.Status, body, err)
			}
			select {
			case <-closed:
			case <-time.After(10 * time.Second):
				t.Error("the connection to the cluster is kept")
			}
		})
	}
}

// TestTruncatedResponse checks that a truncated response is an error for the client.
func TestTruncatedResponse(t *testing.T) {
	for _, http2 := range []bool{true, false} {
		w := newEnv(t, http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(rw, "begin")
			_ = http.NewResponseController(rw).Flush()
			panic(http.ErrAbortHandler)
		}))
		response, err := w.client(http2).Do(w.request("GET", "/k8s/clusters/"+connectedCluster+"/api", "is-jane"))
		if err == nil {
			_, err = io.ReadAll(response.Body)
		}
		if err == nil {
			t.Errorf("HTTP/2 %v: the client takes it for whole", http2)
		}
		w.events("ResponseComplete", 1)
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestResponseHeaderTimeout checks that the time until the response headers is limited, and that of the body is not.
func TestResponseHeaderTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		slow := roundTrip(func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		})
		r := httptest.NewRequest("GET", "/", nil)
		if _, err := answerWithin(answerTimeout, slow, r); !errors.Is(err, errAnswerTimeout) || time.Since(begun) != answerTimeout {
			t.Errorf("after %s: %v", time.Since(begun), err)
		}
		long := roundTrip(func(r *http.Request) (*http.Response, error) {
			time.Sleep(answerTimeout / 2)
			return &http.Response{Body: io.NopCloser(bytes.NewReader(nil)), Request: r}, nil
		})
		answer, err := answerWithin(answerTimeout, long, r)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if err := answer.Request.Context().Err(); err != nil {
			t.Errorf("the answer was ended: %v", err)
		}
		if err := answer.Body.Close(); err != nil || answer.Request.Context().Err() == nil {
			t.Errorf("something is left of it: %v", err)
		}
	})
}
