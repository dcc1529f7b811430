package egress

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	utilkubeconfig "sigs.k8s.io/cluster-api/util/kubeconfig"
)

// oneSecret is an API server with one Cluster and its kubeconfig Secret.
type oneSecret struct {
	client.Reader
	data []byte
}

func (s oneSecret) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	if _, ok := object.(*clusterv1.Cluster); ok {
		return nil
	}
	secret, ok := object.(*corev1.Secret)
	if !ok {
		return errors.New("not a Secret")
	}
	secret.Name, secret.Data = key.Name, map[string][]byte{"value": s.data}
	return nil
}

func secretOf(t *testing.T, server *httptest.Server) oneSecret {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["x"] = &clientcmdapi.Cluster{Server: server.URL,
		CertificateAuthorityData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})}
	config.AuthInfos["x"] = &clientcmdapi.AuthInfo{Token: "hush"}
	config.Contexts["x"] = &clientcmdapi.Context{Cluster: "x", AuthInfo: "x"}
	config.CurrentContext = "x"
	raw, err := clientcmd.Write(*config)
	if err != nil {
		t.Fatal(err)
	}
	return oneSecret{data: raw}
}

// remote is a client as Cluster API's cluster cache makes it.
type remote struct {
	client *http.Client
	url    string
}

func connectTo(t *testing.T, reader client.Reader, cluster string) remote {
	t.Helper()
	raw, err := utilkubeconfig.FromSecret(t.Context(), reader, client.ObjectKey{Namespace: "ns", Name: cluster})
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(raw)
	if err != nil {
		t.Fatal(err)
	}
	config.UserAgent = "test"
	out, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	return remote{out, config.Host}
}

// get requests a path, and returns an error for any answer but 200.
func (r remote) get(path string) error {
	answer, err := r.client.Get(r.url + path)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return errors.New(answer.Status)
	}
	return nil
}

// TestRedirect: a client like those of Cluster API's cluster cache reaches its server over HTTP/2, and is not redirected to another one,
// neither without TLS nor with a certificate of the same authority. It does not accept compressed answers.
func TestRedirect(t *testing.T) {
	clusters := New()
	var stolen []string
	steal := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { stolen = append(stolen, r.Header.Get("Authorization")) })
	plain := httptest.NewServer(steal)
	defer plain.Close()
	secure := httptest.NewTLSServer(steal) // httptest has one certificate for all
	defer secure.Close()
	var to, seen string
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = r.Proto + " " + r.Host + " " + r.Header.Get("Authorization") + r.Header.Get("Accept-Encoding")
		if r.URL.Path == "/away" {
			http.Redirect(w, r, to, http.StatusTemporaryRedirect)
		}
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()

	source := secretOf(t, server)
	other := connectTo(t, clusters.Reader(secretOf(t, secure)), "other")
	for _, to = range []string{plain.URL, secure.URL, other.url, server.URL + "/here", server.URL + "//other.ns/"} {
		guarded := connectTo(t, clusters.Reader(source), "demo")
		if err := guarded.get("/here"); err != nil || seen != "HTTP/2.0 "+strings.TrimPrefix(server.URL, "https://")+" Bearer hush" {
			t.Errorf("the server itself: %v, it sees %q", err, seen)
		}
		if err := guarded.get("/away"); err == nil || len(stolen) > 0 || strings.Contains(err.Error(), "hush") {
			t.Errorf("to %s: %v, %q", to, err, stolen)
		}
	}
	to = plain.URL
	if err := connectTo(t, source, "demo").get("/away"); err != nil || len(stolen) != 1 || stolen[0] != "Bearer hush" {
		t.Errorf("without this package: %v, %q", err, stolen)
	}
}

// TestClusters: each client reaches the server of its own cluster until that is forgotten, and other processes reach none: there is no
// listener.
func TestClusters(t *testing.T) {
	clusters := New()
	var seen string
	serve := func(name string) *httptest.Server {
		server := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { seen = name }))
		t.Cleanup(server.Close)
		return server
	}
	a, b := serve("a"), serve("b")
	toA, toB := connectTo(t, clusters.Reader(secretOf(t, a)), "a"), connectTo(t, clusters.Reader(secretOf(t, b)), "b")
	for name, to := range map[string]remote{"a": toA, "b": toB} {
		if err := to.get("/"); err != nil || seen != name {
			t.Errorf("cluster %s: %q was reached, %v", name, seen, err)
		}
	}
	key := client.ObjectKey{Namespace: "ns", Name: "a"}
	config := clusters.Config(key)
	if config == nil || config.Host != a.URL || config.BearerToken != "hush" {
		t.Fatalf("cluster a is reached by %v", config)
	}
	own, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	if err := (remote{own, config.Host}).get("/"); err != nil || seen != "a" {
		t.Errorf("a connection of one's own reaches %q, %v", seen, err)
	}
	clusters.Forget(key)
	if err := toA.get("/"); err == nil || clusters.Config(key) != nil {
		t.Errorf("a cluster that was forgotten is reached: %v", err)
	}
	if err := connectTo(t, New().Reader(secretOf(t, b)), "b").get("/"); err != nil {
		t.Errorf("with a second hub in the process: %v", err)
	}
}

// TestStall: a connection whose server reads nothing is given up, and clients go on with HTTP/2.
func TestStall(t *testing.T) {
	to, err := connect(client.ObjectKey{Namespace: "ns", Name: "demo"}, &rest.Config{Host: "https://10.0.0.1:6443"})
	if err != nil {
		t.Fatal(err)
	}
	next := to.next
	for wrapper, ok := next.(utilnet.RoundTripperWrapper); ok; wrapper, ok = next.(utilnet.RoundTripperWrapper) {
		next = wrapper.WrappedRoundTripper()
	}
	transport, ok := next.(*http.Transport)
	if !ok || transport.HTTP2 == nil || transport.HTTP2.WriteByteTimeout != stallTimeout || transport.TLSNextProto["h2"] == nil {
		t.Errorf("the connections of a cluster are made by %T %+v", next, next)
	}
}

// TestAddress: names that resolve to a cloud's metadata service are refused.
func TestAddress(t *testing.T) {
	for address, allowed := range map[string]bool{"10.0.0.1:6443": true, "127.0.0.1:6443": true, "[2001:db8::1]:443": true,
		"169.254.169.254:80": false, "[fe80::1%lo]:443": false, "[::ffff:169.254.169.254]:80": false, "0.0.0.0:2379": false} {
		if err := checkAddress("tcp", address, nil); (err == nil) != allowed {
			t.Errorf("%s: %v", address, err)
		}
	}
}

// TestHeaders: a server cannot have its warnings logged, put off a client for long, have an answer decoded as anything but JSON, or fill
// memory with a header.
func TestHeaders(t *testing.T) {
	sent := http.Header{}
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if accept := r.Header.Get("Accept"); strings.Contains(accept, "protobuf") {
			t.Errorf("it is asked for %s", accept)
		}
		for name, values := range sent {
			w.Header()[name] = values
		}
	}))
	defer server.Close()
	to := connectTo(t, New().Reader(secretOf(t, server)), "demo")
	get := func() (http.Header, error) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, to.url+"/api/v1/nodes", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Accept", "application/vnd.kubernetes.protobuf,application/json")
		answer, err := to.client.Do(request)
		if err != nil {
			return nil, err
		}
		return answer.Header, answer.Body.Close()
	}
	for name, tt := range map[string]struct{ header, value, want string }{
		"a warning":        {"Warning", `299 - "` + strings.Repeat("x", 1000) + `"`, ""},
		"a second":         {"Retry-After", "1", "1"},
		"a day":            {"Retry-After", "86400", ""},
		"a date":           {"Retry-After", "Wed, 21 Oct 2026 07:28:00 GMT", ""},
		"JSON":             {"Content-Type", "application/json; charset=utf-8", "application/json; charset=utf-8"},
		"text":             {"Content-Type", "text/plain", "text/plain"},
		"YAML":             {"Content-Type", "application/yaml", "application/json"},
		"protobuf":         {"Content-Type", "application/vnd.kubernetes.protobuf", "application/json"},
		"no type at all":   {"Content-Type", "/", "application/json"},
		"any other header": {"Audit-Id", "x", "x"},
	} {
		sent = http.Header{tt.header: {tt.value}}
		if got, err := get(); err != nil || got.Get(tt.header) != tt.want {
			t.Errorf("%s: %q, %v; want %q", name, got.Get(tt.header), err, tt.want)
		}
	}
	sent = http.Header{}
	for i := range 200 {
		sent.Set(fmt.Sprintf("X-%d", i), strings.Repeat("x", 1000))
	}
	if _, err := get(); err == nil {
		t.Error("a header of 200 KB is read")
	}
}
