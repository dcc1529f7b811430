package apiproxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	utilproxy "k8s.io/apimachinery/pkg/util/proxy"
	apiserverproxy "k8s.io/apiserver/pkg/util/proxy"
	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"
)

// newClusterWithNode returns the part of an API server that serves exec, attach and port-forward, with a kubelet behind it; both are
// Kubernetes' code except for the container.
func newClusterWithNode(t *testing.T) http.Handler {
	t.Helper()
	kubelet := httptest.NewServer(http.HandlerFunc(serveKubelet))
	t.Cleanup(kubelet.Close)
	location, err := url.Parse(kubelet.URL)
	if err != nil {
		t.Fatal(err)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		target := *location
		target.Path, target.RawQuery = r.URL.Path, r.URL.RawQuery
		upgrade := utilproxy.NewUpgradeAwareHandler(&target, http.DefaultTransport, false, true, responder{t})
		var handler http.Handler = upgrade
		switch {
		case r.Header.Get("Upgrade") != "websocket":
		case r.URL.Path == "/portforward":
			handler = apiserverproxy.NewTunnelingHandler(upgrade)
		default:
			query := r.URL.Query()
			handler = apiserverproxy.NewStreamTranslatorHandler(&target, http.DefaultTransport, 0, apiserverproxy.Options{
				Stdin: query.Get("stdin") != "", Stdout: query.Get("stdout") != "", Stderr: query.Get("stderr") != "", Tty: query.Get("tty") != "",
			})
		}
		handler.ServeHTTP(w, r)
	})
}

type responder struct{ t *testing.T }

func (r responder) Error(w http.ResponseWriter, _ *http.Request, err error) {
	http.Error(w, err.Error(), http.StatusBadGateway)
}

func serveKubelet(w http.ResponseWriter, r *http.Request) {
	const idle, creation = 30 * time.Second, 5 * time.Second
	options := &remotecommand.Options{
		Stdin: r.FormValue("stdin") != "", Stdout: r.FormValue("stdout") != "", Stderr: r.FormValue("stderr") != "",
		TTY: r.FormValue("tty") != "",
	}
	protocols := remotecommand.SupportedStreamingProtocols
	switch r.URL.Path {
	case "/exec":
		remotecommand.ServeExec(w, r, container{}, "pod", "uid", r.FormValue("container"), r.Form["command"], options, idle, creation, protocols)
	case "/attach":
		remotecommand.ServeAttach(w, r, container{}, "pod", "uid", r.FormValue("container"), options, idle, creation, protocols)
	case "/portforward":
		portforward.ServePortForward(w, r, container{}, "pod", "uid", nil, idle, creation, portforward.SupportedProtocols)
	default:
		http.NotFound(w, r)
	}
}

// container implements the commands "cat", "fail" and "hang", and echoes on every port.
type container struct{}

func (container) ExecInContainer(ctx context.Context, _, _, name string, command []string, in io.Reader, out, failures io.WriteCloser,
	_ bool, _ <-chan remotecommand.TerminalSize, _ time.Duration) error {
	switch command[0] {
	case "cat":
		_, err := io.Copy(out, in)
		return err
	case "fail":
		_, _ = fmt.Fprintf(failures, "%s: no\n", name)
		return utilexec.CodeExitError{Err: errors.New("exit 3"), Code: 3}
	case "hang":
		_, _ = fmt.Fprintln(out, "ready")
		<-ctx.Done()
		return ctx.Err()
	}
	return fmt.Errorf("no such command: %v", command)
}

func (container) AttachContainer(_ context.Context, _, _, _ string, in io.Reader, out, _ io.WriteCloser, _ bool,
	_ <-chan remotecommand.TerminalSize) error {
	_, err := io.Copy(out, in)
	return err
}

func (container) PortForward(_ context.Context, _, _ string, port int32, stream io.ReadWriteCloser) error {
	_, _ = fmt.Fprintf(stream, "port %d\n", port)
	_, err := io.Copy(stream, stream)
	return err
}
