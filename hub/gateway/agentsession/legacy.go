package agentsession

import (
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"net"
	"net/http"
	"strings"

	"github.com/drover-dev/drover/hub/access/tunnel"
	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	"github.com/drover-dev/drover/hub/util/response"
)

const (
	tunnelTokenHeader  = "X-API-Tunnel-Token"
	tunnelParamsHeader = "X-API-Tunnel-Params"
	// legacyAPIPrefix precedes the registration token by which a legacy agent opens its second tunnel, and the cluster in that tunnel's key.
	legacyAPIPrefix = "stv-cluster-"
	// maxTunnelParams bounds tunnelParamsHeader.
	maxTunnelParams = 32 << 10
)

// legacyCaller is an agent made for another hub: it shows the registration token of its cluster each time.
func (a *Agents) legacyCaller(r *http.Request, token string) (*Caller, error) {
	second := response.BearerToken(r) != ""
	if second {
		token = strings.TrimPrefix(token, legacyAPIPrefix)
	}
	found, err := a.legacyToken(r.Context(), token)
	if err != nil {
		return nil, err
	}
	agent := tunnel.Agent{Key: found.Spec.ClusterName}
	if second {
		agent.Key = legacyAPIPrefix + agent.Key
	} else if agent.Legacy, err = parseTunnelParams(r.Header.Get(tunnelParamsHeader)); err != nil {
		return nil, err
	}
	return &Caller{agent: agent, valid: func(ctx context.Context) error {
		_, err := a.legacyToken(ctx, token)
		return err
	}}, nil
}

// legacyToken returns the ClusterRegistrationToken of a token that a legacy agent shows.
func (a *Agents) legacyToken(ctx context.Context, token string) (*managementv3.ClusterRegistrationToken, error) {
	found, err := a.Registrar.Tokens.Find(ctx, token, managementv3.AgentsPurpose)
	if err == nil && !servesLegacy(found) {
		return nil, response.Errorf(http.StatusForbidden, "this registration token has spec.maxUses, and agents of other hubs have no id to "+
			"count them by; create a ClusterRegistrationToken without spec.maxUses for this agent")
	}
	return found, err
}

// servesLegacy reports whether legacy agents may show a token. Nothing tells them apart, so that no use of theirs can be counted: with a
// token that is used up, anybody could pose as the cluster.
func servesLegacy(token *managementv3.ClusterRegistrationToken) bool {
	return token.Spec.Serves(managementv3.AgentsPurpose) && token.Spec.MaxUses <= 0
}

// parseTunnelParams reads what a legacy agent says about its cluster. These are claims, by which the cluster's API is reached through
// this agent's own tunnel and nothing else.
func parseTunnelParams(header string) (*tunnel.LegacyCluster, error) {
	bad := func(text string) error {
		return response.Errorf(http.StatusBadRequest, "%s: %s", tunnelParamsHeader, text)
	}
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
	return &tunnel.LegacyCluster{Address: address, Token: params.Cluster.Token, CACert: authority}, nil
}
