package apiproxy

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/httpstream" //nolint:staticcheck // client-go 0.36 still takes these types
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
	utilexec "k8s.io/client-go/util/exec"

	"github.com/drover-dev/drover/hub/testenv/wait"
)

func (w *env) config() *rest.Config {
	return &rest.Config{
		Host: w.hub.URL + "/k8s/clusters/" + connectedCluster, BearerToken: "is-jane",
		TLSClientConfig: rest.TLSClientConfig{CAData: pemOf(w.hub.Certificate())},
	}
}

func (w *env) urlOf(path, query string) *url.URL {
	w.t.Helper()
	u, err := url.Parse(w.config().Host + path + "?" + query)
	if err != nil {
		w.t.Fatal(err)
	}
	return u
}

// executors are the protocols of old and new kubectl.
func (w *env) executors(path, query string) map[string]remotecommand.Executor {
	w.t.Helper()
	u := w.urlOf(path, query)
	webSocket, err := remotecommand.NewWebSocketExecutor(w.config(), "GET", u.String())
	if err != nil {
		w.t.Fatal(err)
	}
	old, err := remotecommand.NewSPDYExecutor(w.config(), "POST", u)
	if err != nil {
		w.t.Fatal(err)
	}
	return map[string]remotecommand.Executor{"WebSocket": webSocket, "SPDY": old}
}

// TestExecAndAttach checks that input and output of a container are complete, and the audit events.
func TestExecAndAttach(t *testing.T) {
	data := bytes.Repeat([]byte("some bytes that are carried to a container and back\n"), 100_000)
	for _, path := range []string{"/exec", "/attach"} {
		w := newEnv(t, newClusterWithNode(t))
		for name, executor := range w.executors(path, "command=cat&command=-&container=app&stdin=1&stdout=1&stderr=1") {
			var out, failures bytes.Buffer
			err := executor.StreamWithContext(t.Context(),
				remotecommand.StreamOptions{Stdin: bytes.NewReader(data), Stdout: &out, Stderr: &failures})
			if err != nil || sha256.Sum256(out.Bytes()) != sha256.Sum256(data) || failures.Len() > 0 {
				t.Errorf("%s over %s: %d of %d bytes came back, %q: %v", path, name, out.Len(), len(data), &failures, err)
			}
		}
		for _, event := range w.events("ResponseComplete", 2) {
			a := event.Annotations
			if event.ResponseStatus.Code != 101 || a["proxy.drover.dev/command"] != "cat -" || a["proxy.drover.dev/container"] != "app" ||
				len(a["proxy.drover.dev/bytes-to-cluster"]) != 7 || len(a["proxy.drover.dev/bytes-from-cluster"]) != 7 ||
				a["proxy.drover.dev/duration"] == "" {
				t.Errorf("%s: event with %+v and %v", path, event.ResponseStatus, a)
			}
		}
		if started := w.events("ResponseStarted", 2)[0]; started.ResponseStatus.Code != 101 ||
			started.Annotations["proxy.drover.dev/command"] != "cat -" {
			t.Errorf("%s: event %+v", path, started)
		}
	}
}

func TestExecExitCode(t *testing.T) {
	w := newEnv(t, newClusterWithNode(t))
	for name, executor := range w.executors("/exec", "command=fail&container=app&stdout=1&stderr=1") {
		var out, failures bytes.Buffer
		err := executor.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdout: &out, Stderr: &failures})
		var exit utilexec.ExitError
		if !errors.As(err, &exit) || exit.ExitStatus() != 3 || failures.String() != "app: no\n" {
			t.Errorf("%s: %v, %q", name, err, &failures)
		}
	}
}

// TestStreamEnd checks that each end is closed when the other one is, and that the audit log names which was first.
func TestStreamEnd(t *testing.T) {
	for by, end := range map[string]func(w *env, leave func()){
		"client":  func(_ *env, leave func()) { leave() },
		"cluster": func(w *env, _ func()) { w.agents.cut() },
		"hub":     func(w *env, _ func()) { w.handler.Close() },
	} {
		t.Run(by, func(t *testing.T) {
			w := newEnv(t, newClusterWithNode(t))
			executor := w.executors("/exec", "command=hang&stdout=1")["WebSocket"]
			ctx, leave := context.WithCancel(t.Context())
			out, in := io.Pipe()
			done := make(chan error, 1)
			go func() { done <- executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: in}) }()
			if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
				t.Fatalf("%q, %v", line, err)
			}
			end(w, leave)
			if err := <-done; err == nil {
				t.Error("the client takes it for a success")
			}
			event := w.events("ResponseComplete", 1)[0]
			if got := event.Annotations["proxy.drover.dev/ended-by"]; got != by {
				t.Errorf("ended by %q, want %q", got, by)
			}
			wait.Until(t, 10*time.Second, "nothing to be counted any more", func() bool {
				w.handler.limits.mu.Lock()
				defer w.handler.limits.mu.Unlock()
				return len(w.handler.limits.counts) == 0
			})
		})
	}
}

// TestPortForward checks both protocols of port-forward, with several connections at once.
func TestPortForward(t *testing.T) {
	w := newEnv(t, newClusterWithNode(t))
	u := w.urlOf("/portforward", "")
	webSocket, err := portforward.NewSPDYOverWebsocketDialer(u, w.config())
	if err != nil {
		t.Fatal(err)
	}
	transport, upgrader, err := spdy.RoundTripperFor(w.config())
	if err != nil {
		t.Fatal(err)
	}
	for name, dialer := range map[string]httpstream.Dialer{
		"WebSocket": webSocket, "SPDY": spdy.NewDialer(upgrader, &http.Client{Transport: transport}, "POST", u),
	} {
		stop, ready := make(chan struct{}), make(chan struct{})
		forwarder, err := portforward.New(dialer, []string{"0:8080"}, stop, ready, io.Discard, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- forwarder.ForwardPorts() }()
		select {
		case <-ready:
		case err := <-done:
			t.Fatalf("%s: %v", name, err)
		}
		ports, err := forwarder.GetPorts()
		if err != nil {
			t.Fatal(err)
		}
		for range 5 {
			echo(t, name, fmt.Sprintf("127.0.0.1:%d", ports[0].Local))
		}
		close(stop)
		if err := <-done; err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func echo(t *testing.T, name, address string) {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	data := strings.Repeat("x", 200_000) + "\n"
	go func() { _, _ = io.WriteString(conn, data) }()
	reader := bufio.NewReader(conn)
	greeting, _ := reader.ReadString('\n')
	if back, err := reader.ReadString('\n'); greeting != "port 8080\n" || back != data {
		t.Errorf("%s: %q, then %d bytes: %v", name, greeting, len(back), err)
	}
}

// TestWatch checks that each event of a watch reaches the client at once, over HTTP/2 and HTTP/1.1, and that the request to the cluster
// ends with that of the client.
func TestWatch(t *testing.T) {
	for _, http2 := range []bool{true, false} {
		next, gone := make(chan string), make(chan struct{})
		w := newEnv(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			defer close(gone)
			_ = http.NewResponseController(rw).Flush()
			for {
				select {
				case event := <-next:
					_, _ = io.WriteString(rw, event+"\n")
					_ = http.NewResponseController(rw).Flush()
				case <-r.Context().Done():
					return
				}
			}
		}))
		ctx, leave := context.WithCancel(t.Context())
		response, err := w.client(http2).Do(w.request("GET", "/k8s/clusters/"+connectedCluster+"/api/v1/pods?watch=true",
			"is-jane").WithContext(ctx))
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewReader(response.Body)
		for i := range 3 {
			event := fmt.Sprintf("event %d", i)
			next <- event
			if line, err := lines.ReadString('\n'); line != event+"\n" {
				t.Fatalf("%q, %v", line, err)
			}
		}
		leave()
		_ = response.Body.Close()
		select {
		case <-gone:
		case <-time.After(10 * time.Second):
			t.Errorf("HTTP/2 %v: the cluster does not learn that the client has gone", http2)
		}
		if e := w.events("ResponseStarted", 1)[0]; e.Verb != "watch" || e.ResponseStatus.Code != 200 {
			t.Errorf("event %+v", e)
		}
		if e := completed(w); e.ResponseStatus.Code != 200 {
			t.Errorf("event %+v", e)
		}
	}
}

func completed(w *env) auditv1.Event {
	w.t.Helper()
	return w.events("ResponseComplete", 1)[0]
}
