// Package egress is the way of Cluster API's cluster cache to clusters: a proxy inside of the hub that connects each client to the server
// of its kubeconfig and to nothing else. The cache makes its HTTP clients itself, and they follow redirects with the cluster's credential;
// a proxy in the kubeconfig is the one thing that reaches below them. TLS is between the cache and the cluster, so that the proxy sees
// neither credentials nor content.
//
// It keeps no list of clusters: the URL that a client is given says where it may go, and is signed.
package egress

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"syscall"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/drover-dev/drover/hub/access/kubeconfig"
)

const (
	dialTimeout = 30 * time.Second
	headTimeout = 10 * time.Second
)

// Proxy connects to the servers that its own URLs name. It is a Runnable of controller-runtime.
type Proxy struct {
	listener net.Listener
	key      []byte
	dialer   net.Dialer
}

// Listen makes a proxy on a free port of the loopback address, which serves once Start runs.
func Listen() (*Proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listening for connections to clusters: %w", err)
	}
	key := make([]byte, sha256.Size)
	if _, err := rand.Read(key); err != nil {
		return nil, fmt.Errorf("making a key: %w", err)
	}
	p := &Proxy{listener: listener, key: key}
	p.dialer = net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second, Control: checkAddress}
	return p, nil
}

// checkAddress looks at what a server's name has become, just before it is connected to.
func checkAddress(_, address string, _ syscall.RawConn) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	return kubeconfig.CheckAddress(at.Addr())
}

// NeedLeaderElection is false: connections to clusters do not wait for it.
func (p *Proxy) NeedLeaderElection() bool { return false }

// Start serves until ctx ends.
func (p *Proxy) Start(ctx context.Context) error {
	server := &http.Server{
		Handler: p, ReadHeaderTimeout: headTimeout, MaxHeaderBytes: 8 << 10,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	if err := server.Serve(p.listener); err != nil && ctx.Err() == nil {
		return fmt.Errorf("serving connections to clusters: %w", err)
	}
	return nil
}

// URL is the proxy for a client of a server, an https URL; empty where the environment has a proxy for it, which is kept.
func (p *Proxy) URL(server string) (string, error) {
	u, err := url.Parse(server)
	if err != nil {
		return "", err
	}
	if outer, err := http.ProxyFromEnvironment(&http.Request{URL: u}); err != nil || outer != nil {
		return "", err
	}
	target := hostPort(u)
	out := url.URL{Scheme: "http", Host: p.listener.Addr().String(),
		User: url.UserPassword(base64.RawURLEncoding.EncodeToString([]byte(target)), p.sign(target))}
	return out.String(), nil
}

func hostPort(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = "443"
	}
	return net.JoinHostPort(strings.ToLower(u.Hostname()), port)
}

func (p *Proxy) sign(target string) string {
	mac := hmac.New(sha256.New, p.key)
	mac.Write([]byte(target))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// ServeHTTP implements http.Handler. Requests without TLS come only of redirects, and are not for this proxy to pass on.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	target, ok := p.target(r)
	if !ok {
		http.Error(w, "this client has no business here", http.StatusProxyAuthRequired)
		return
	}
	if r.Method != http.MethodConnect || strings.ToLower(r.Host) != target && r.Host != inCluster() {
		http.Error(w, "the hub follows no redirect to another host", http.StatusForbidden)
		return
	}
	server, err := p.dialer.DialContext(r.Context(), "tcp", r.Host)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	client, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		_ = server.Close()
		return
	}
	if _, err := io.WriteString(client, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		_, _ = client.Close(), server.Close()
		return
	}
	// The server does not end connections that were taken from it.
	stop := context.AfterFunc(r.Context(), func() { _, _ = client.Close(), server.Close() })
	defer stop()
	// What the client has sent before it was answered.
	ahead, _ := buffered.Reader.Peek(buffered.Reader.Buffered())
	if _, err = server.Write(ahead); err == nil {
		if err = join(client, server, stallTimeout, maxReceived); err != nil {
			log.FromContext(r.Context()).Info("Connection to a cluster closed", "server", r.Host, "reason", err.Error())
		}
	}
	_, _ = client.Close(), server.Close()
}

// target is where the client may go.
func (p *Proxy) target(r *http.Request) (string, bool) {
	inner := http.Request{Header: http.Header{"Authorization": r.Header["Proxy-Authorization"]}}
	name, signature, ok := inner.BasicAuth()
	raw, err := base64.RawURLEncoding.DecodeString(name)
	if !ok || err != nil || !hmac.Equal([]byte(signature), []byte(p.sign(string(raw)))) {
		return "", false
	}
	return string(raw), true
}

// inCluster is the address that Cluster API takes instead of the kubeconfig's for the cluster that the hub itself runs in.
func inCluster() string {
	host, port := os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT")
	if host == "" || port == "" {
		return ""
	}
	return net.JoinHostPort(host, port)
}
