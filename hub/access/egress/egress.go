// Package egress is the way of Cluster API's cluster cache to clusters, whose API servers may be hostile. The cache makes its HTTP clients
// itself, of kubeconfigs. Those that it gets from here have a URL scheme that only this process knows: client-go uses the default transport
// of net/http for a URL without TLS, and net/http passes requests for a scheme that was registered to this package. So each client reaches
// the server of its own kubeconfig and nothing else, and what the server answers is limited before it is decoded.
//
// It must not know what clients do with an answer.
package egress

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/hub/access/kubeconfig"
	"github.com/drover-dev/drover/hub/util/redirect"
)

const (
	dialTimeout = 30 * time.Second
	// stallTimeout is how long a server may read nothing of what is written to it by HTTP/2, whose requests share a connection: one that is
	// written does not end with its request. The pings of client-go do not find this where the server goes on sending.
	stallTimeout = 2 * time.Minute
)

// Clusters are the connections to clusters, an http.RoundTripper for the URL scheme of the kubeconfigs that Reader returns.
type Clusters struct {
	scheme string

	mu sync.RWMutex
	// connections are found by the host of the URL.
	connections map[string]*connection
}

type connection struct {
	config *rest.Config
	server *url.URL
	next   http.RoundTripper
}

// schemes counts the schemes, of which net/http forgets none.
var schemes atomic.Int64

// New registers a URL scheme. It is called once for each hub of a process.
func New() *Clusters {
	c := &Clusters{scheme: fmt.Sprintf("cluster%d", schemes.Add(1)), connections: map[string]*connection{}}
	http.DefaultTransport.(*http.Transport).RegisterProtocol(c.scheme, c)
	return c
}

// RoundTrip implements http.RoundTripper.
func (c *Clusters) RoundTrip(r *http.Request) (*http.Response, error) {
	to := c.get(r.URL.Host)
	if to == nil {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, fmt.Errorf("the kubeconfig Secret of cluster %s was not read", r.URL.Host)
	}
	r = r.Clone(r.Context())
	r.URL.Scheme, r.URL.Host, r.Host = to.server.Scheme, to.server.Host, ""
	return to.next.RoundTrip(r)
}

// Config is how a cluster is reached by connections of one's own, with the same limits; nil where its kubeconfig Secret was not read.
func (c *Clusters) Config(cluster client.ObjectKey) *rest.Config {
	to := c.get(hostOf(cluster))
	if to == nil {
		return nil
	}
	return rest.CopyConfig(to.config)
}

// Forget gives up what is kept of a cluster.
func (c *Clusters) Forget(cluster client.ObjectKey) { c.set(hostOf(cluster), nil) }

// hostOf names a cluster in URLs, and so in the errors of clients.
func hostOf(cluster client.ObjectKey) string { return cluster.Name + "." + cluster.Namespace }

func (c *Clusters) get(host string) *connection {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.connections[host]
}

func (c *Clusters) set(host string, to *connection) {
	c.mu.Lock()
	before := c.connections[host]
	if to == nil {
		delete(c.connections, host)
	} else {
		c.connections[host] = to
	}
	c.mu.Unlock()
	if before != nil {
		utilnet.CloseIdleConnectionsFor(before.next)
	}
}

// url has clients of a cluster use the connection of its host.
func (c *Clusters) url(cluster client.ObjectKey, to *connection) string {
	out := url.URL{Scheme: c.scheme, Host: hostOf(cluster), Path: to.server.Path}
	return out.String()
}

// connect prepares connections to the server of a kubeconfig.
func connect(cluster client.ObjectKey, config *rest.Config) (*connection, error) {
	server, err := url.Parse(config.Host)
	if err != nil {
		return nil, err
	}
	dialer := &net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second, Control: checkAddress}
	if proxy, err := http.ProxyFromEnvironment(&http.Request{URL: server}); err != nil || proxy != nil {
		dialer.Control = nil // the administrator has chosen the address of the proxy
	}
	// Without compression: a small answer could become a large one. client-go shares no transport of a configuration with a Proxy.
	config.Dial, config.Proxy, config.DisableCompression = dialer.DialContext, http.ProxyFromEnvironment, true
	config.Wrap(limitConnections)
	redirect.Restrict(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return newAnswers(cluster, next) })
	next, err := rest.TransportFor(config)
	if err != nil {
		return nil, err
	}
	return &connection{config: config, server: server, next: next}, nil
}

// checkAddress looks at what a server's name has become, just before it is connected to.
func checkAddress(_, address string, _ syscall.RawConn) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	return kubeconfig.CheckAddress(at.Addr())
}
