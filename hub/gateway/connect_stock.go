package gateway

import (
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"net"
	"net/http"
	"strings"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	"github.com/drover-dev/drover/hub/tunnel"
)

// maxTunnelParams bounds the header with what an agent of another hub says of its cluster.
const maxTunnelParams = 32 << 10

// stockCaller is an agent of another hub: it shows the registration token of its cluster each time.
func (s *Server) stockCaller(r *http.Request) (*caller, error) {
	token, prefix := r.Header.Get(tunnelTokenHeader), ""
	if bearer := bearerToken(r); bearer != "" {
		token, prefix = strings.TrimPrefix(bearer, stockAPIPrefix), stockAPIPrefix
	}
	if err := s.mayGuess(r, token); err != nil {
		return nil, err
	}
	registration, err := s.joins.tokens.find(r.Context(), token, managementv3.AgentsPurpose)
	if err != nil {
		return nil, err
	}
	agent := tunnel.Agent{Key: prefix + registration.Spec.ClusterName}
	if prefix == "" {
		if agent.Stock, err = parseTunnelParams(r.Header.Get(tunnelParamsHeader)); err != nil {
			return nil, err
		}
	}
	return &caller{agent: agent, valid: func(ctx context.Context) error {
		_, err := s.joins.tokens.find(ctx, token, managementv3.AgentsPurpose)
		return err
	}}, nil
}

// parseTunnelParams reads what an agent of another hub says of its cluster. These are claims: they tell how to reach the cluster's API through
// this agent's own tunnel, and nothing else is ever reached by them.
func parseTunnelParams(header string) (*tunnel.StockCluster, error) {
	bad := func(text string) error { return refuse(http.StatusBadRequest, "%s: %s", tunnelParamsHeader, text) }
	if len(header) > maxTunnelParams {
		return nil, bad("it is too long")
	}
	raw, err := base64.StdEncoding.DecodeString(header)
	if err != nil {
		return nil, bad("it must be JSON in base64")
	}
	var params struct {
		Cluster *struct {
			Address string `json:"address"`
			Token   string `json:"token"`
			CACert  string `json:"caCert"`
		} `json:"cluster"`
	}
	if err := json.Unmarshal(raw, &params); err != nil {
		return nil, bad("it must be JSON in base64")
	}
	if params.Cluster == nil {
		return nil, bad("cluster is missing; this hub takes tunnels of cluster-agents, and of machines that show the token of their plan")
	}
	address := strings.TrimPrefix(params.Cluster.Address, "https://")
	if _, _, err := net.SplitHostPort(address); err != nil {
		return nil, bad("cluster.address must be host:port")
	}
	if params.Cluster.Token == "" {
		return nil, bad("cluster.token is missing")
	}
	authority, err := base64.StdEncoding.DecodeString(params.Cluster.CACert)
	if err != nil || !x509.NewCertPool().AppendCertsFromPEM(authority) {
		return nil, bad("cluster.caCert must be certificates, PEM in base64")
	}
	return &tunnel.StockCluster{Address: address, Token: params.Cluster.Token, CACert: authority}, nil
}
