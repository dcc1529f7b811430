// Package tunnel is the agents' end of the reverse tunnel: it connects out to the hub, keeps the sessions up, and answers what the hub
// dials over them from a list. The wire is that of the remotedialer library, which runs each session.
//
// It decides nothing about credentials and serves no requests: whoever starts it says how the agent shows itself to the hub, and what a
// dial gets.
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
	// agentHeader tells the hub what connects; a session without it is one of other software.
	agentHeader = "X-Drover-Agent"
	// replicaHeader and replicasHeader come with the hub's answer: which replica it is, and how many there are.
	replicaHeader  = "X-Drover-Replica"
	replicasHeader = "X-Drover-Replicas"
	// heldHeader tells the hub which replicas the agent has sessions to already, so that none of them takes a second one.
	heldHeader = "X-Drover-Held-Replicas"

	endpoint = "/v3/connect"
)

// Access is what one attempt to connect needs.
type Access struct {
	// Server is the hub's URL, without the path of the endpoint.
	Server string
	// Token is shown as bearer token.
	Token string
	// TLS says which certificates are believed; nil means those of the machine.
	TLS *tls.Config
	// Proxy may be nil, which means that of the environment.
	Proxy func(*http.Request) (*url.URL, error)
}

// Dial answers a dial of the hub. An error ends that one stream, never the session.
type Dial func(ctx context.Context, network, address string) (net.Conn, error)

// Options of a Client. Agent, Access, Dial and Log must be set.
type Options struct {
	// Agent is the kind and version, such as "cluster/v1.2.3".
	Agent string
	// Access is asked before each attempt, since credentials and authorities change. The error of one that waits says what for.
	Access func(context.Context) (Access, error)
	// Refused is told of a token that the hub does not take; may be nil.
	Refused func(token string)
	// Dial answers the hub.
	Dial Dial
	// Sessions is how many there are at most, each to another replica of the hub; 0 means 1.
	Sessions int
	Log      *slog.Logger
}
