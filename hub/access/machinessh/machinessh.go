// Package machinessh lets users log in to machines of node drivers: it gives them the SSH key that the driver has saved, and connects them
// through the machine's own tunnel where it has one. Whoever may get the machine state Secret, which holds the key, may do both. An Event
// of the Machine tells who did, before anything is given.
//
// The hub itself opens no connection to an address: that of a machine is text in a Secret which users may write.
package machinessh

import (
	"context"
	"net"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/hub/access/tunnel"
	"github.com/drover-dev/drover/hub/identity/userauth"
	"github.com/drover-dev/drover/hub/util/inflight"
	"github.com/drover-dev/drover/hub/util/ratelimit"
	"github.com/drover-dev/drover/hub/util/response"
)

const (
	// Pattern is where a Handler has to be mounted.
	Pattern = "/v3/machines/{namespace}/{name}/ssh"
	// Protocol is the value of the header Upgrade of a request that becomes a connection to the machine's SSH server.
	Protocol = "drover-ssh"

	answerTimeout = 30 * time.Second
	// maxConcurrent bounds requests and connections, maxPerUser those of one user.
	maxConcurrent = 256
	maxPerUser    = 32
)

// Path is that of a machine.
func Path(machine client.ObjectKey) string {
	return "/v3/machines/" + machine.Namespace + "/" + machine.Name + "/ssh"
}

// Access is what a user needs to log in to a machine.
type Access struct {
	User    string `json:"user"`
	Address string `json:"address"`
	Port    int    `json:"port"`
	// PrivateKey is in PEM.
	PrivateKey []byte `json:"privateKey"`
	// Tunnel is true where the machine is reached through the hub, by the same request with Protocol.
	Tunnel bool `json:"tunnel"`
	// UID is that of the Machine. Another one with its name or address has another host key.
	UID string `json:"uid"`
}

// Tunnels are the sessions of this replica, as tunnel.Manager has them.
type Tunnels interface {
	Dial(ctx context.Context, key, network, address string) (net.Conn, error)
	Route(key string) (tunnel.Route, bool)
}

// Remote leads to the sessions of other replicas, as replicas.Directory does.
type Remote interface {
	Owner(key string) (http.RoundTripper, bool)
}

// Options say whom a Handler asks. All fields are needed.
type Options struct {
	// Authenticator tells who a user is; Authorizer, what he may do in the management cluster.
	Authenticator authenticator.Request
	Authorizer    authorizer.Authorizer
	// Client reads from the cache and writes, Live reads past the cache.
	Client client.Client
	Live   client.Reader
	// TunnelKey is the key of a machine's tunnel.
	TunnelKey func(context.Context, *clusterv1.Machine) (string, error)
	Tunnels   Tunnels
	Remote    Remote
	// FromPeer reports whether a request was forwarded by another replica, which has asked who the user is and what he may do.
	FromPeer func(*http.Request) bool
	Logger   logr.Logger
}

// Handler serves GET at Pattern.
type Handler struct {
	Options
	slots *inflight.Limiter
	// stopped ends when connections have to.
	stopped context.Context
	stop    context.CancelFunc
}

// New makes a Handler.
func New(opts Options) *Handler {
	h := &Handler{Options: opts, slots: inflight.New(maxConcurrent, maxPerUser)}
	h.stopped, h.stop = context.WithCancel(context.Background())
	return h
}

// Close ends all connections.
func (h *Handler) Close() { h.stop() }

// ServeHTTP answers GET with an Access as JSON, or, where the header Upgrade is Protocol, with 101: from then on the connection is one to
// the SSH server of the machine. Errors are a metav1.Status: 401 for unknown users and holders of a token of the hub, 403 for machines that
// do not exist or whose state the user may not get, 409 for those without a key, 429 with Retry-After, 502 where the machine does not
// answer with SSH, 503 where it has no tunnel or nobody can be authenticated.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	response.SetTimeout(w, answerTimeout)
	if err := h.serve(w, r); err != nil {
		h.refuse(w, r, err)
	}
}

func (h *Handler) serve(w http.ResponseWriter, r *http.Request) error {
	ctx, cancel := context.WithTimeout(r.Context(), answerTimeout)
	defer cancel()
	key := client.ObjectKey{Namespace: r.PathValue("namespace"), Name: r.PathValue("name")}
	upgrade := r.Header.Get("Upgrade")
	switch {
	case r.Method != http.MethodGet:
		return response.Errorf(http.StatusMethodNotAllowed, "send GET")
	case upgrade != "" && upgrade != Protocol:
		return response.Errorf(http.StatusBadRequest, "the header Upgrade must be %s, got %.50q", Protocol, upgrade)
	}
	if h.FromPeer(r) {
		machine, err := h.machine(ctx, key)
		if err != nil {
			return err
		}
		s, err := h.state(ctx, machine)
		if err != nil {
			return err
		}
		return h.connect(ctx, w, r, s)
	}
	who, err := userauth.Direct(h.Authenticator, r, h.Logger, "show a client certificate or a token of the hub's own Kubernetes")
	if err != nil {
		return err
	}
	userauth.Trust(r.Context(), who)
	release, ok := h.slots.Acquire(who.GetName())
	if !ok {
		return response.TooMany(time.Second, "too many concurrent requests and connections to machines")
	}
	defer release()
	// Read once: another Secret than the one that the user may get must not be read.
	machine, err := h.machine(ctx, key)
	if err != nil {
		return err
	}
	if err := h.authorize(ctx, who, key, machine); err != nil {
		return err
	}
	s, err := h.state(ctx, machine)
	if err != nil {
		return err
	}
	client := ratelimit.ClientAddress(r)
	log := h.Logger.WithValues("Machine", key, "user", who.GetName(), "client", client)
	if upgrade != "" {
		log.Info("A user connects to a machine over SSH")
		if err := h.record(ctx, s.machine, "SSHConnection", "User %q, from %s, connects over SSH", who.GetName(), client); err != nil {
			return err
		}
		return h.connect(ctx, w, r, s)
	}
	log.Info("A user gets the SSH key of a machine")
	if err := h.record(ctx, s.machine, "SSHKeyRead", "User %q, from %s, gets the SSH key", who.GetName(), client); err != nil {
		return err
	}
	answer := s.access
	answer.Tunnel = h.hasTunnel(s.tunnel)
	response.WriteJSON(w, http.StatusOK, answer)
	return nil
}

func (h *Handler) refuse(w http.ResponseWriter, r *http.Request, err error) {
	response.WriteStatus(w, err, func(err error) {
		if r.Context().Err() == nil {
			h.Logger.Error(err, "Serving SSH failed")
		}
	})
}
