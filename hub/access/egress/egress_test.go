package egress

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	utilkubeconfig "sigs.k8s.io/cluster-api/util/kubeconfig"
)

// start returns a proxy that serves until the test ends.
func start(t *testing.T) *Proxy {
	t.Helper()
	p, err := Listen()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- p.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return p
}

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

func kubeconfigOf(t *testing.T, server *httptest.Server) []byte {
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
	return raw
}

// TestRedirect: a client like those of Cluster API's cluster cache reaches its server over HTTP/2, and is not redirected to another one,
// neither without TLS nor with a certificate of the same authority. It does not accept compressed answers.
func TestRedirect(t *testing.T) {
	p := start(t)
	var stolen []string
	steal := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { stolen = append(stolen, r.Header.Get("Authorization")) })
	plain := httptest.NewServer(steal)
	defer plain.Close()
	secure := httptest.NewTLSServer(steal) // httptest has one certificate for all
	defer secure.Close()
	var to, seen string
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = r.Proto + " " + r.Header.Get("Authorization") + r.Header.Get("Accept-Encoding")
		if r.URL.Path == "/away" {
			http.Redirect(w, r, to, http.StatusTemporaryRedirect)
		}
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()

	connect := func(reader client.Reader) *http.Client {
		t.Helper()
		raw, err := utilkubeconfig.FromSecret(t.Context(), reader, client.ObjectKey{Namespace: "ns", Name: "demo"})
		if err != nil {
			t.Fatal(err)
		}
		config, err := clientcmd.RESTConfigFromKubeConfig(raw)
		if err != nil {
			t.Fatal(err)
		}
		client, err := rest.HTTPClientFor(config)
		if err != nil {
			t.Fatal(err)
		}
		return client
	}
	get := func(client *http.Client, path string) error {
		answer, err := client.Get(server.URL + path)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			return errors.New(answer.Status)
		}
		return nil
	}
	source := oneSecret{data: kubeconfigOf(t, server)}
	for _, to = range []string{plain.URL, secure.URL} {
		stolen = nil
		if err := get(connect(source), "/away"); err != nil || len(stolen) != 1 || stolen[0] != "Bearer hush" {
			t.Fatalf("without the proxy, to %s: %v, %q", to, err, stolen)
		}
		stolen = nil
		guarded := connect(p.Reader(source))
		if err := get(guarded, "/here"); err != nil || seen != "HTTP/2.0 Bearer hush" {
			t.Errorf("the server itself: %v, it sees %q", err, seen)
		}
		if err := get(guarded, "/away"); err == nil || len(stolen) > 0 || strings.Contains(err.Error(), "hush") {
			t.Errorf("to %s: %v, %q", to, err, stolen)
		}
	}
}

// TestSentAhead: what a client sends without waiting for the answer reaches the server before what it sends later, and so does its end.
func TestSentAhead(t *testing.T) {
	p := start(t)
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	go func() {
		conn, err := server.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = io.Copy(conn, conn)
	}()
	raw, err := p.URL("https://" + server.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	proxy, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", proxy.Host)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	password, _ := proxy.User.Password()
	credential := base64.StdEncoding.EncodeToString([]byte(proxy.User.Username() + ":" + password))
	fmt.Fprintf(conn, "CONNECT %[1]s HTTP/1.1\r\nHost: %[1]s\r\nProxy-Authorization: Basic %[2]s\r\n\r\nsent ahead, ", server.Addr(), credential)
	answers := bufio.NewReader(conn)
	answer, err := http.ReadResponse(answers, &http.Request{Method: http.MethodConnect})
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatal(answer, err)
	}
	_, err = io.WriteString(conn, "and later")
	if err := errors.Join(err, conn.(*net.TCPConn).CloseWrite()); err != nil {
		t.Fatal(err)
	}
	if echo, err := io.ReadAll(answers); err != nil || string(echo) != "sent ahead, and later" {
		t.Errorf("the server has got %q, %v", echo, err)
	}
}

// TestUnauthenticatedClients: other programs on the hub's host, and clients for other servers, get no connection.
func TestUnauthenticatedClients(t *testing.T) {
	p, other := start(t), start(t)
	server := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("it was reached") }))
	defer server.Close()
	at := func(p *Proxy, server string) string {
		t.Helper()
		out, err := p.URL(server)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	bare := "http://" + p.listener.Addr().String()
	foreign := strings.Replace(at(other, server.URL), other.listener.Addr().String(), p.listener.Addr().String(), 1)
	for name, proxy := range map[string]string{"nobody": bare, "of another hub": foreign,
		"of another server": at(p, "https://127.0.0.2:6443")} {
		through, err := url.Parse(proxy)
		if err != nil {
			t.Fatal(err)
		}
		client := server.Client()
		client.Transport.(*http.Transport).Proxy = http.ProxyURL(through)
		if answer, err := client.Get(server.URL); err == nil {
			_ = answer.Body.Close()
			t.Errorf("%s: %s", name, answer.Status)
		}
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
