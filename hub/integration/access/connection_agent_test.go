package access

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/rancher/remotedialer"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/drover-dev/drover/hub/clusteragent"
)

// fetch gets a path of the gateway.
func fetch(t *testing.T, path string) (int, string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: env.Trust(), DisableKeepAlives: true}}
	answer, err := client.Get(env.ServerURL + path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(body)
}

// credential exchanges a registration token.
func credential(t *testing.T, token, id string) string {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: env.Trust(), DisableKeepAlives: true}}
	for end := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, env.ServerURL+"/v3/connect/credential", strings.NewReader(fmt.Sprintf(`{"agent":%q}`, id)))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer "+token)
		answer, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		if answer.StatusCode == http.StatusOK {
			var got struct{ Credential string }
			if err := json.Unmarshal(body, &got); err != nil {
				t.Fatal(err)
			}
			return got.Credential
		}
		if answer.StatusCode != http.StatusServiceUnavailable || time.Now().After(end) {
			t.Fatalf("the token was answered with %d %s", answer.StatusCode, body)
		}
	}
}

// connect is an agent of the library's, which speaks for the downstream API by the given rights; nil for one that speaks for nobody. It is
// gone when what it returns is called.
func connect(t *testing.T, credential string, rights *rest.Config) (leave func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	connected, ended := make(chan struct{}), make(chan struct{})
	header := http.Header{"Authorization": {"Bearer " + credential}, "X-Drover-Agent": {"cluster/test"}}
	api := apiServer(t, rights)
	go func() {
		defer close(ended)
		dial := func(_ context.Context, network, address string) (net.Conn, error) {
			if network != "drover" || address != "kube-api" {
				return nil, fmt.Errorf("%s %s is not served", network, address)
			}
			return api()
		}
		_ = remotedialer.ConnectToProxyWithDialer(ctx, strings.Replace(env.ServerURL, "https", "wss", 1)+"/v3/connect", header,
			func(string, string) bool { return true }, &websocket.Dialer{TLSClientConfig: env.Trust()}, dial,
			func(context.Context, *remotedialer.Session) error { close(connected); return nil })
	}()
	select {
	case <-connected:
	case <-ended:
		t.Fatal("the agent was not let in")
	case <-time.After(time.Minute):
		t.Fatal("the agent did not connect")
	}
	leave = func() { cancel(); <-ended }
	t.Cleanup(leave)
	return leave
}

// apiServer passes requests on to the downstream API, and returns what opens connections to it.
func apiServer(t *testing.T, rights *rest.Config) func() (net.Conn, error) {
	t.Helper()
	if rights == nil {
		return func() (net.Conn, error) { return nil, fmt.Errorf("nobody is served") }
	}
	transport, err := rest.TransportFor(rights)
	if err != nil {
		t.Fatal(err)
	}
	target, err := url.Parse(rights.Host)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: &httputil.ReverseProxy{
		FlushInterval: -1, Transport: transport,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			if r.In.Header.Get("Impersonate-User") == "" || r.In.Header.Get("Authorization") != "" {
				t.Errorf("the hub asks %s without saying for whom, or with a credential", r.In.URL.Path)
			}
		},
	}}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	return func() (net.Conn, error) { return net.Dial("tcp", listener.Addr().String()) }
}

// agentRights are those of the ServiceAccount that the manifest makes in the downstream cluster.
func agentRights(t *testing.T) *rest.Config {
	t.Helper()
	clientset, err := kubernetes.NewForConfig(downstream.RestConfig())
	if err != nil {
		t.Fatal(err)
	}
	token, err := clientset.CoreV1().ServiceAccounts(clusteragent.Namespace).CreateToken(t.Context(), clusteragent.ServiceAccount, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	config := rest.AnonymousClientConfig(downstream.RestConfig())
	config.BearerToken = token.Status.Token
	return config
}
