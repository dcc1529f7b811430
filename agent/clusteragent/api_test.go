package clusteragent

import (
	"bufio"
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/gorilla/websocket"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

const (
	ownToken = "token-of-the-service-account"
	planted  = "credential-of-a-user"
)

// kubernetes is a TLS server that speaks HTTP/2 and upgrades, as a Kubernetes API does.
func kubernetes(t *testing.T, handler http.HandlerFunc) *rest.Config {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte(ownToken), 0o600); err != nil {
		t.Fatal(err)
	}
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	return &rest.Config{Host: server.URL, BearerTokenFile: token, TLSClientConfig: rest.TLSClientConfig{CAData: ca}}
}

func serveAPI(t *testing.T, cfg *rest.Config, groups ...string) *api {
	t.Helper()
	a, err := newAPI(cfg, groups, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		a.serve()
	}()
	t.Cleanup(func() {
		a.close()
		<-done
	})
	return a
}

// client is the hub's side: plain HTTP/1.1 over what it dials.
func client(t *testing.T, a *api) *http.Client {
	t.Helper()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return a.dial(ctx, Network,
			Address)
	}}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: time.Minute}
}

func request(t *testing.T, path string, header http.Header) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://kube-api"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header = header
	return r
}

func TestRequestsAreMadeInTheNameOfAUser(t *testing.T) {
	var got atomic.Pointer[http.Request]
	a := serveAPI(t, kubernetes(t, func(w http.ResponseWriter, r *http.Request) {
		got.Store(r)
		fmt.Fprint(w, "answer")
	}))
	response, err := client(t, a).Do(request(t, "/api/v1/pods/a%2Fb?limit=5", http.Header{
		"Impersonate-User": {"anna"}, "Impersonate-Group": {"dev", "ops"}, "Impersonate-Uid": {"7"}, "Impersonate-Extra-Scope": {"x"},
		"Authorization": {"Bearer " + planted}, "Cookie": {"session=" + planted}, "Proxy-Authorization": {planted}, "X-Remote-User": {"root"},
		"X-Remote-Group":  {mastersGroup},
		"X-Forwarded-For": {"192.0.2.7"}, "Audit-Id": {"4711"}, "User-Agent": {"kubectl"},
		// Proxies drop headers that are named here.
		"Connection": {"Impersonate-User, Impersonate-Group"},
	}))
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(response.Body)
	if response.StatusCode != 200 || string(body) != "answer" {
		t.Fatalf("%d: %s", response.StatusCode, body)
	}
	r := got.Load()
	if r.ProtoMajor != 2 || r.RequestURI != "/api/v1/pods/a%2Fb?limit=5" {
		t.Errorf("%s %s", r.Proto, r.RequestURI)
	}
	r.Header.Del("Accept-Encoding")
	want := http.Header{
		"Impersonate-User": {"anna"}, "Impersonate-Group": {"dev", "ops"}, "Impersonate-Uid": {"7"}, "Impersonate-Extra-Scope": {"x"},
		"Authorization": {"Bearer " + ownToken}, "X-Forwarded-For": {"192.0.2.7"}, "Audit-Id": {"4711"}, "User-Agent": {"kubectl"},
	}
	if diff := cmp.Diff(want, r.Header); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}
}

func TestRequestsThatAreRefused(t *testing.T) {
	var served atomic.Int64
	cfg := kubernetes(t, func(http.ResponseWriter, *http.Request) { served.Add(1) })
	for _, test := range []struct {
		name   string
		header http.Header
		groups []string
		want   string
	}{
		{name: "no user", header: http.Header{}, want: "need exactly one user"},
		{name: "no user, but a group", header: http.Header{"Impersonate-Group": {"dev"}}, want: "need exactly one user"},
		{name: "an empty user", header: http.Header{"Impersonate-User": {""}}, want: "need exactly one user"},
		{name: "two users", header: http.Header{"Impersonate-User": {"anna", "bert"}}, want: "need exactly one user"},
		{name: "masters", header: http.Header{"Impersonate-User": {"anna"}, "Impersonate-Group": {"dev", mastersGroup}},
			want: "without --allow-group system:masters"},
		{name: "masters, with spaces", header: http.Header{"Impersonate-User": {"anna"}, "Impersonate-Group": {" " + mastersGroup + " "}},
			want: "without --allow-group system:masters"},
		{name: "a ServiceAccount of the cluster", header: http.Header{"Impersonate-User": {"system:serviceaccount:kube-system:admin"}},
			want: "does not impersonate user system:serviceaccount:kube-system:admin"},
		{name: "a node", header: http.Header{"Impersonate-User": {"anna"}, "Impersonate-Group": {"system:nodes"}},
			want: "does not impersonate group system:nodes"},
		{name: "administrators of kubeadm", header: http.Header{"Impersonate-User": {"anna"}, "Impersonate-Group": {"kubeadm:cluster-admins"}},
			groups: []string{mastersGroup}, want: "does not impersonate group kubeadm:cluster-admins"},
		{name: "the hub's controllers", header: http.Header{"Impersonate-User": {"system:drover:hub"},
			"Impersonate-Group": {"drover:controllers", "system:authenticated"}}},
		{name: "a ServiceAccount of the hub's Kubernetes", header: http.Header{"Impersonate-User": {"drover:hub:system:serviceaccount:a:b"},
			"Impersonate-Group": {"drover:hub:system:serviceaccounts"}}},
		{name: "masters where that is allowed", header: http.Header{"Impersonate-User": {"anna"}, "Impersonate-Group": {mastersGroup}},
			groups: []string{mastersGroup}},
	} {
		t.Run(test.name, func(t *testing.T) {
			served.Store(0)
			a := serveAPI(t, cfg, test.groups...)
			response, err := client(t, a).Do(request(t, "/api", test.header))
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			if test.want == "" {
				if response.StatusCode != 200 || served.Load() != 1 {
					t.Errorf("%d", response.StatusCode)
				}
				return
			}
			var status metav1.Status
			if err := json.NewDecoder(response.Body).Decode(&status); err != nil || response.StatusCode != 403 ||
				status.Reason != metav1.StatusReasonForbidden || !strings.Contains(status.Message, test.want) {
				t.Errorf("%d %+v, %v", response.StatusCode, status, err)
			}
			if served.Load() != 0 || a.status().Refused != 1 {
				t.Errorf("served %d, refused %d", served.Load(), a.status().Refused)
			}
		})
	}
}

func TestOnlyTheKubernetesAPIIsDialed(t *testing.T) {
	a := serveAPI(t, kubernetes(t, nil))
	for _, target := range [][2]string{{"tcp", "127.0.0.1:10250"}, {"tcp", Address}, {Network, "kubelet"}, {"unix", "/run/containerd.sock"}} {
		if conn, err := a.dial(t.Context(), target[0], target[1]); err == nil || !strings.Contains(err.Error(), "is not allowed by this agent") {
			t.Errorf("%v: %v, %v", target, conn, err)
		}
	}
}

func TestAnswersComeAtOnce(t *testing.T) {
	next := make(chan struct{})
	a := serveAPI(t, kubernetes(t, func(w http.ResponseWriter, r *http.Request) {
		for i := range 3 {
			fmt.Fprintf(w, "event %d\n", i)
			w.(http.Flusher).Flush()
			<-next
		}
	}))
	response, err := client(t, a).Do(request(t, "/api/v1/pods?watch=true", http.Header{"Impersonate-User": {"anna"}}))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	lines := bufio.NewReader(response.Body)
	for i := range 3 {
		if line, err := lines.ReadString('\n'); err != nil || line != fmt.Sprintf("event %d\n", i) {
			t.Fatalf("%q, %v", line, err)
		}
		if s := a.status(); s.Long != 1 || s.Short != 0 {
			t.Errorf("a watch counts as %+v", s)
		}
		next <- struct{}{}
	}
}

func TestWebSocket(t *testing.T) {
	a := serveAPI(t, kubernetes(t, func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 1 || r.Header.Get("Authorization") != "Bearer "+ownToken || r.Header.Get(userHeader) != "anna" {
			http.Error(w, "wrong", 400)
			return
		}
		ws, err := (&websocket.Upgrader{Subprotocols: []string{"v5.channel.k8s.io"}}).Upgrade(w, r,
			http.Header{"X-Offered": {strings.Join(r.Header[protocolHeader], "|")}})
		if err != nil {
			return
		}
		defer ws.Close()
		for {
			kind, message, err := ws.ReadMessage()
			if err != nil || ws.WriteMessage(kind, message) != nil {
				return
			}
		}
	}))
	dialer := websocket.Dialer{NetDialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return a.dial(ctx, Network,
			Address)
	},
		Subprotocols: []string{"v5.channel.k8s.io", tokenProtocol + planted, "v4.channel.k8s.io"}}
	ws, response, err := dialer.DialContext(t.Context(), "ws://kube-api/api/v1/namespaces/x/pods/y/exec",
		http.Header{"Impersonate-User": {"anna"}})
	if err != nil {
		t.Fatal(err)
	}
	defer ws.Close()
	if got := response.Header.Get("X-Offered"); got != "v5.channel.k8s.io, v4.channel.k8s.io" || ws.Subprotocol() != "v5.channel.k8s.io" {
		t.Errorf("the API was offered %q and took %q", got, ws.Subprotocol())
	}
	for _, want := range []string{"hello", strings.Repeat("x", 1<<20)} {
		if err := ws.WriteMessage(websocket.BinaryMessage, []byte(want)); err != nil {
			t.Fatal(err)
		}
		if _, got, err := ws.ReadMessage(); err != nil || string(got) != want {
			t.Fatalf("%d bytes, %v", len(got), err)
		}
	}
}

// Old clients upgrade to SPDY, which the proxy does not decode. Each end notices when the other one closes the connection.
func TestSPDY(t *testing.T) {
	ended := make(chan error, 1)
	a := serveAPI(t, kubernetes(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "SPDY/3.1" || r.Header.Get("X-Stream-Protocol-Version") != "v4.channel.k8s.io" {
			http.Error(w, "wrong", 400)
			return
		}
		conn, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n"+
			"X-Stream-Protocol-Version: v4.channel.k8s.io\r\n\r\n")
		_, err = io.Copy(conn, buffered)
		ended <- err
	}))
	before := runtime.NumGoroutine()
	conn, err := a.dial(t.Context(), Network, Address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "POST /api/v1/namespaces/x/pods/y/exec HTTP/1.1\r\nHost: kube-api\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n"+
		"X-Stream-Protocol-Version: v4.channel.k8s.io\r\nImpersonate-User: anna\r\n\r\n")
	lines := bufio.NewReader(conn)
	response, err := http.ReadResponse(lines, nil)
	if err != nil || response.StatusCode != 101 || response.Header.Get("Upgrade") != "SPDY/3.1" {
		t.Fatalf("%+v, %v", response, err)
	}
	fmt.Fprint(conn, "frames\n")
	if line, err := lines.ReadString('\n'); err != nil || line != "frames\n" {
		t.Fatalf("%q, %v", line, err)
	}
	if s := a.status(); s.Long != 1 {
		t.Errorf("status is %+v", s)
	}
	conn.Close()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Fatal("the API does not see that the user has gone")
	}
	for deadline := time.Now().Add(time.Minute); a.status().Long != 0 ||
		runtime.NumGoroutine() > before; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%+v, and %d goroutines where there were %d", a.status(), runtime.NumGoroutine(), before)
		}
	}
}

func TestUnreachableAPI(t *testing.T) {
	a := serveAPI(t, &rest.Config{Host: "https://127.0.0.1:1"})
	response, err := client(t, a).Do(request(t, "/api", http.Header{"Impersonate-User": {"anna"}}))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var status metav1.Status
	if err := json.NewDecoder(response.Body).Decode(&status); err != nil || response.StatusCode != 503 ||
		response.Header.Get("Retry-After") == "" ||
		!strings.Contains(status.Message, "the cluster agent cannot reach the Kubernetes API: ") {
		t.Errorf("%d %+v, %v", response.StatusCode, status, err)
	}
	if s := a.status(); s.Failed != 1 || s.Short != 0 {
		t.Errorf("status is %+v", s)
	}
}

// Clients repeat what gets Retry-After. What the API may have carried out does not get it.
func TestLostRequest(t *testing.T) {
	lost := kubernetes(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	away := &rest.Config{Host: "https://127.0.0.1:1"}
	upgrade := http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}}
	for _, test := range []struct {
		name   string
		api    *rest.Config
		method string
		header http.Header
		want   int
	}{
		{name: "a read that got lost", api: lost, method: http.MethodGet, want: 503},
		{name: "a write that got lost", api: lost, method: http.MethodPost, want: 502},
		{name: "a write without a connection", api: away, method: http.MethodPost, want: 503},
		{name: "an upgrade that got lost", api: lost, method: http.MethodGet, header: upgrade, want: 502},
		{name: "an upgrade without a connection", api: away, method: http.MethodGet, header: upgrade, want: 503},
	} {
		t.Run(test.name, func(t *testing.T) {
			a := serveAPI(t, test.api)
			r := request(t, "/api/v1/namespaces/x/pods", http.Header{"Impersonate-User": {"anna"}})
			r.Method = test.method
			maps.Copy(r.Header, test.header)
			if test.method == http.MethodPost {
				r.Body = io.NopCloser(strings.NewReader("{}"))
			}
			response, err := client(t, a).Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			var status metav1.Status
			if err := json.NewDecoder(response.Body).Decode(&status); err != nil || response.StatusCode != test.want ||
				int(status.Code) != test.want || (response.Header.Get("Retry-After") != "") != (test.want == 503) {
				t.Errorf("%d %v %+v, %v", response.StatusCode, response.Header, status, err)
			}
		})
	}
}

func TestStopWaitsForRequests(t *testing.T) {
	arrived, finish := make(chan struct{}), make(chan struct{})
	a := serveAPI(t, kubernetes(t, func(http.ResponseWriter, *http.Request) {
		close(arrived)
		<-finish
	}))
	a.drain(time.Hour) // nothing is asked yet
	done := make(chan error, 1)
	r, hub := request(t, "/api", http.Header{"Impersonate-User": {"anna"}}), client(t, a)
	go func() {
		response, err := hub.Do(r)
		if err == nil {
			err = response.Body.Close()
		}
		done <- err
	}()
	<-arrived
	start := time.Now()
	if a.drain(20 * time.Millisecond); time.Since(start) > time.Minute || a.status().Short != 1 {
		t.Errorf("it waited for %s", time.Since(start))
	}
	quiet := make(chan struct{})
	go func() {
		a.drain(time.Hour)
		close(quiet)
	}()
	close(finish)
	<-quiet
	if err := <-done; err != nil {
		t.Error(err)
	}
}
