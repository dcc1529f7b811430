// Package tunnel is the agent's end of the reverse tunnel: it connects to the hub, keeps the sessions connected, and dials for the hub what
// is allowed. Each session is one of package tunnel/session, whose wire is that of the remotedialer library.
//
// It does not decide about credentials and serves no requests: its caller provides the credentials and the connections.
package tunnel

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"net/url"
)

const (
	// agentHeader is kind and version of the agent; legacy agents do not send it.
	agentHeader = "X-Drover-Agent"
	// replicaHeader and replicasHeader are in the hub's response: the name of the replica, and the number of replicas.
	replicaHeader  = "X-Drover-Replica"
	replicasHeader = "X-Drover-Replicas"
	// connectedHeader lists the replicas with which the agent already has sessions, so that they refuse another one.
	connectedHeader = "X-Drover-Held-Replicas"

	endpoint = "/v3/connect"
)

// Access is what an attempt to connect needs.
type Access struct {
	// Server is the hub's URL, without the path of the endpoint.
	Server string
	// Token is the bearer token.
	Token string
	// TLS is the client configuration; nil trusts the CAs of the machine.
	TLS *tls.Config
	// Proxy chooses the proxy; nil is http.ProxyFromEnvironment.
	Proxy func(*http.Request) (*url.URL, error)
}

// Dial dials an address for the hub. An error ends that stream, not the session.
type Dial func(ctx context.Context, network, address string) (net.Conn, error)

// Options of a Client. Agent, Access, Dial and Log must be set.
type Options struct {
	// Agent is kind and version, such as "cluster/v1.2.3".
	Agent string
	// Access is called before each attempt, since credentials and CAs change. Its error is logged, and the attempt repeated.
	Access func(context.Context) (Access, error)
	// Unauthorized is called with a token for which the hub returned 401; may be nil.
	Unauthorized func(token string)
	// Dial dials for the hub.
	Dial Dial
	// Sessions is the maximum number of sessions, each to another replica of the hub; 0 is 1.
	Sessions int
	// Log gets the state of the tunnel, and single streams at level debug.
	Log *slog.Logger
}
