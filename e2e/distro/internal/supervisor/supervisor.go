// Package supervisor is what a server offers to nodes that join, at the paths that k3s uses: the authorities, settings and
// certificates for an agent, the authorities' keys for another server. The bodies of its answers are this fixture's own.
package supervisor

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"net"
	"net/http"
	"sync"

	"github.com/drover-dev/drover/e2e/distro/internal/flavour"
)

// SocketVariable names the environment variable with the unix socket at which this node's supervisor answers. k3s has its
// supervisor and the Kubernetes API on one port; here the API server passes the supervisor's paths on.
const SocketVariable = "K3S_SUPERVISOR_SOCKET"

// RemoteAddress is the header in which the API server says who asked.
const RemoteAddress = "X-K3s-Remote-Addr"

// Paths begins the paths of all that only nodes and administrators ask for.
var Paths = flavour.Name("/v1-*/")

func path(rest string) string { return Paths + rest }

// Settings are what an agent takes over from its server.
type Settings struct {
	ClusterCIDR           []string `json:"clusterCIDR"`
	ServiceCIDR           []string `json:"serviceCIDR"`
	ClusterDNS            []string `json:"clusterDNS"`
	ClusterDomain         string   `json:"clusterDomain"`
	DisableKubeProxy      bool     `json:"disableKubeProxy,omitempty"`
	DisableCloud          bool     `json:"disableCloudController,omitempty"`
	SystemDefaultRegistry string   `json:"systemDefaultRegistry,omitempty"`
	CNI                   []string `json:"cni,omitempty"`
}

// Bundle holds files by their path below server/tls.
type Bundle map[string][]byte

// SignRequest asks for an agent's certificates; the keys stay on the agent.
type SignRequest struct {
	NodeName string   `json:"nodeName"`
	NodeIPs  []string `json:"nodeIPs"`
	// Keys are public keys, PKIX DER, by the name of the certificate.
	Keys map[string][]byte `json:"keys"`
}

// SignResponse holds PEM certificates by name, and those of the authorities as client-ca and server-ca.
type SignResponse map[string][]byte

// Member is a member of etcd, in the spelling of /db/info.
type Member struct {
	ID         uint64   `json:"ID"`
	Name       string   `json:"name"`
	PeerURLs   []string `json:"peerURLs"`
	ClientURLs []string `json:"clientURLs"`
	IsLearner  bool     `json:"isLearner,omitempty"`
}

// Info is the answer of /db/info.
type Info struct {
	Members []Member `json:"members"`
}

// Server answers joining nodes.
type Server struct {
	CACerts []byte
	// ServerToken and AgentToken are those at the start; see SetTokens.
	ServerToken, AgentToken string
	Settings                Settings
	Bootstrap               func() (Bundle, error)
	Sign                    func(SignRequest) (SignResponse, error)
	APIServers              func(context.Context) ([]string, error)
	Etcd                    func(context.Context) (Info, error)
	// Proxied is true if requests come through the API server.
	Proxied bool
	// Admin answers further paths for those that know the server's token.
	Admin map[string]http.HandlerFunc

	tokensMu sync.RWMutex
}

// SetTokens lets other tokens than before open the server.
func (s *Server) SetTokens(server, agent string) {
	s.tokensMu.Lock()
	defer s.tokensMu.Unlock()
	s.ServerToken, s.AgentToken = server, agent
}

func (s *Server) serverToken() []string {
	s.tokensMu.RLock()
	defer s.tokensMu.RUnlock()
	return []string{s.ServerToken}
}

func (s *Server) anyToken() []string {
	s.tokensMu.RLock()
	defer s.tokensMu.RUnlock()
	return []string{s.ServerToken, s.AgentToken}
}

// Handler returns the server's paths.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /cacerts", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(s.CACerts) })
	mux.HandleFunc("GET /ping", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("pong")) })
	mux.HandleFunc("GET "+path("readyz"), s.node(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok")) }))
	mux.HandleFunc("GET "+path("config"), s.node(func(w http.ResponseWriter, _ *http.Request) { reply(w, s.Settings, nil) }))
	mux.HandleFunc("GET "+path("apiservers"), s.node(func(w http.ResponseWriter, r *http.Request) {
		v, err := s.APIServers(r.Context())
		reply(w, v, err)
	}))
	mux.HandleFunc("POST "+path("certificates"), s.node(func(w http.ResponseWriter, r *http.Request) {
		var req SignRequest
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(&req); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		v, err := s.Sign(req)
		reply(w, v, err)
	}))
	mux.HandleFunc("GET "+path("server-bootstrap"), s.server(func(w http.ResponseWriter, _ *http.Request) {
		v, err := s.Bootstrap()
		reply(w, v, err)
	}))
	info := func(w http.ResponseWriter, r *http.Request) {
		v, err := s.Etcd(r.Context())
		reply(w, v, err)
	}
	mux.HandleFunc("GET /db/info", func(w http.ResponseWriter, r *http.Request) {
		if host, _, err := net.SplitHostPort(s.remote(r)); err == nil && net.ParseIP(host).IsLoopback() {
			info(w, r)
			return
		}
		s.server(info)(w, r)
	})
	for pattern, h := range s.Admin {
		mux.HandleFunc(pattern, s.server(h))
	}
	return mux
}

func (s *Server) remote(r *http.Request) string {
	if s.Proxied {
		return r.Header.Get(RemoteAddress)
	}
	return r.RemoteAddr
}

// server lets those in that know the server's token, node also those that know the agents'.
func (s *Server) server(h http.HandlerFunc) http.HandlerFunc { return s.guard(h, s.serverToken) }

func (s *Server) node(h http.HandlerFunc) http.HandlerFunc {
	return s.guard(h, s.anyToken)
}

func (s *Server) guard(h http.HandlerFunc, tokens func() []string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, given, _ := r.BasicAuth()
		for _, t := range tokens() {
			if t != "" && subtle.ConstantTimeCompare([]byte(t), []byte(given)) == 1 {
				h(w, r)
				return
			}
		}
		http.Error(w, "the token is not one of this cluster", http.StatusUnauthorized)
	}
}

func reply(w http.ResponseWriter, v any, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}
