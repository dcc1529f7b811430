package apiproxy

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/drover-dev/drover/hub/access/tunnel"
)

const (
	// The network and address at which our own agents answer for the API of their cluster. They add the credential.
	agentNetwork, agentAddress = "drover", "kube-api"

	// answerTimeout is how long a cluster may take to begin its answer to an ordinary request: a little more than its API server lets it take.
	answerTimeout = 75 * time.Second
	// handshakeTimeout is for the TLS of clusters whose agent leaves that to the hub.
	handshakeTimeout = 10 * time.Second
	// idleConns is how many connections per cluster wait for the next request. Fewer would have busy clusters open one for most requests.
	idleConns   = 100
	idleTimeout = 90 * time.Second
)

// errAnswerTimeout tells that a cluster did not begin to answer within answerTimeout.
var errAnswerTimeout = errors.New("no answer in time")

// Tunnels are the sessions of this replica, as tunnel.Manager has them.
type Tunnels interface {
	Route(key string) (tunnel.Route, bool)
	RouteOf(key string, session int64) (tunnel.Route, bool)
	DialSession(ctx context.Context, key string, session int64, network, address string) (net.Conn, error)
}

// Remote leads to the sessions of other replicas, as peers.Directory does.
type Remote interface {
	Owner(key string) (http.RoundTripper, bool)
}

// upstream is the way to all clusters. Connections are pooled by a host that names cluster and session, so that there is nothing to keep
// per cluster, and no request waits on a session that has been left for a better one.
type upstream struct {
	tunnels Tunnels
	remote  Remote
	// own leads to agents of ours, legacy to others.
	own, legacy http.RoundTripper
}

func newUpstream(tunnels Tunnels, remote Remote) *upstream {
	u := &upstream{tunnels: tunnels, remote: remote}
	own, legacy := &renewedTransport{most: maxDials}, &renewedTransport{most: maxDials}
	own.create = func() *http.Transport {
		t := newTransport()
		t.DialContext = own.counted(func(ctx context.Context, _, address string) (net.Conn, error) {
			key, session := splitHost(address)
			return tunnels.DialSession(ctx, key, session, agentNetwork, agentAddress)
		})
		return t
	}
	legacy.create = func() *http.Transport {
		t := newTransport()
		t.DialTLSContext = legacy.counted(func(ctx context.Context, _, address string) (net.Conn, error) {
			return u.dialLegacy(ctx, address)
		})
		return t
	}
	u.own, u.legacy = own, legacy
	return u
}

// newTransport speaks HTTP/1.1 only: upgrades need it, and through a tunnel pooled connections are as quick as HTTP/2.
func newTransport() *http.Transport {
	return &http.Transport{
		MaxIdleConnsPerHost: idleConns,
		IdleConnTimeout:     idleTimeout,
		DisableCompression:  true,
		WriteBufferSize:     16 << 10,
		// What a cluster answers is not to be trusted.
		MaxResponseHeaderBytes: 1 << 20,
	}
}

// hostOf is what connections through a session are pooled by. A session that has ended is in no Route any more, so that a connection that
// was opened through another one instead serves those requests only that had the Route before.
func hostOf(key string, session int64) string { return key + "." + strconv.FormatInt(session, 10) }

// splitHost returns key and session of an address whose host is from hostOf.
func splitHost(address string) (key string, session int64) {
	dot := strings.LastIndexByte(address, '.')
	digits, _, _ := strings.Cut(address[dot+1:], ":")
	session, _ = strconv.ParseInt(digits, 10, 64) // without a session there is no such route
	return address[:dot], session
}

// dialLegacy opens a connection to the API server that an agent has told of.
func (u *upstream) dialLegacy(ctx context.Context, pooledBy string) (net.Conn, error) {
	key, session := splitHost(pooledBy)
	route, found := u.tunnels.RouteOf(key, session)
	agent := route.Agent
	if !found || agent.Legacy == nil {
		return nil, &tunnel.NoSessionError{Key: key}
	}
	host, _, err := net.SplitHostPort(agent.Legacy.Address)
	if err != nil {
		return nil, fmt.Errorf("the agent gives %q as the address of its API, which is not a host with a port", agent.Legacy.Address)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(agent.Legacy.CACert) {
		return nil, errors.New("the agent gives no certificate authority for its API")
	}
	conn, err := u.tunnels.DialSession(ctx, key, route.Session, "tcp", agent.Legacy.Address)
	if err != nil {
		return nil, err
	}
	secure := tls.Client(conn, &tls.Config{RootCAs: roots, ServerName: host, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}})
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("TLS handshake with the cluster's API: %w", err)
	}
	return secure, nil
}

// RoundTrip sends a request to its cluster, through a session of this replica if there is one.
func (u *upstream) RoundTrip(r *http.Request) (*http.Response, error) {
	c := callOf(r)
	next, out, err := u.route(r, c)
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, err
	}
	if c.isLongRunning() {
		return next.RoundTrip(out)
	}
	return answerWithin(answerTimeout, next, out)
}

// route returns how a request goes on, and what it is then.
func (u *upstream) route(r *http.Request, c *call) (http.RoundTripper, *http.Request, error) {
	out := r.Clone(r.Context())
	route, here := u.tunnels.Route(c.cluster)
	if !here || route.Suspect {
		if owner, found := u.owner(c); found {
			who, err := encodeIdentity(c.downstream)
			out.Header.Set(identityHeader, who)
			return owner, out, err
		}
	}
	if !here {
		return nil, nil, &tunnel.NoSessionError{Key: c.cluster}
	}
	target, agent := *c.url, route.Agent
	target.Host = hostOf(c.cluster, route.Session)
	out.URL, out.Host = &target, "kubernetes.default.svc"
	if agent.Legacy == nil {
		target.Scheme = "http"
		return impersonating(c.downstream, u.own), out, nil
	}
	target.Scheme, out.Host = "https", agent.Legacy.Address
	out.Header.Set("Authorization", "Bearer "+agent.Legacy.Token)
	return impersonating(c.downstream, u.legacy), out, nil
}

// owner leads to another replica. What one has forwarded goes no further.
func (u *upstream) owner(c *call) (http.RoundTripper, bool) {
	if c.fromPeer || u.remote == nil {
		return nil, false
	}
	return u.remote.Owner(c.cluster)
}

// answerWithin bounds the time until an answer begins. How long it may go on is not bounded.
func answerWithin(limit time.Duration, next http.RoundTripper, r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(r.Context())
	timer := time.AfterFunc(limit, cancel)
	answer, err := next.RoundTrip(r.WithContext(ctx))
	inTime := timer.Stop()
	switch {
	case err == nil && inTime:
		answer.Body = &cancelingBody{answer.Body, cancel}
		return answer, nil
	case err == nil:
		_ = answer.Body.Close()
	}
	cancel()
	if !inTime {
		err = errAnswerTimeout
	}
	return nil, err
}

// cancelingBody lets go of what belongs to a request when its answer has been read.
type cancelingBody struct {
	io.ReadCloser
	end func()
}

func (b *cancelingBody) Close() error {
	err := b.ReadCloser.Close()
	b.end()
	return err
}
