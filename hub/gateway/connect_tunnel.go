package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/gorilla/websocket"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/connlimit"
	"github.com/drover-dev/drover/hub/ownership"
	"github.com/drover-dev/drover/hub/tokens"
	"github.com/drover-dev/drover/hub/tunnel"
)

const (
	// Headers of agents of other hubs.
	tunnelTokenHeader  = "X-API-Tunnel-Token"
	tunnelParamsHeader = "X-API-Tunnel-Params"
	// stockAPIPrefix comes before the registration token by which such an agent opens the second tunnel that it has, and before the
	// cluster in that tunnel's key.
	stockAPIPrefix = "stv-cluster-"
)

// Tunnels holds the sessions of agents. A *tunnel.Manager is one.
type Tunnels interface {
	// Serve makes a request the session of an agent, and returns when that has ended.
	Serve(w http.ResponseWriter, r *http.Request, agent tunnel.Agent)
	// Disconnect ends the sessions of agents that match.
	Disconnect(match func(tunnel.Agent) bool, reason string)
}

// serveTunnel lets an agent open a tunnel, once it is known whose it is.
func (s *Server) serveTunnel(w http.ResponseWriter, r *http.Request) {
	caller, err := s.tunnelCaller(r)
	if err != nil {
		s.countGuess(r, err)
		writeWithin(w, answerTimeout)
		s.writePlain(w, r, err)
		return
	}
	connlimit.Trust(r.Context())
	// What the caller was let in with may have been taken back while it was looked at, before there was a session to end.
	again := time.AfterFunc(recheckAfter, func() { s.recheck(caller) })
	defer again.Stop()
	s.opts.Tunnels.Serve(w, r, caller.agent)
}

// caller is who opens a tunnel. valid tells whether he would still be let in.
type caller struct {
	agent tunnel.Agent
	valid func(context.Context) error
}

func (s *Server) tunnelCaller(r *http.Request) (*caller, error) {
	bearer := bearerToken(r)
	token := bearer
	if token == "" {
		token = r.Header.Get(tunnelTokenHeader)
	}
	leave, err := s.gate.enter(r, token, s.recognizes(token))
	if err != nil {
		return nil, err
	}
	defer leave()
	switch {
	case !websocket.IsWebSocketUpgrade(r):
		return nil, refuse(http.StatusBadRequest, "agents open a websocket here")
	case token == "" || len(token) > maxTokenLength:
		return nil, refuse(http.StatusUnauthorized, "the agent's credential is missing: it belongs into the header Authorization, after Bearer")
	case !s.sources.synced():
		return nil, errStarting
	}
	if bearer == "" || strings.HasPrefix(bearer, stockAPIPrefix) {
		return s.stockCaller(r)
	}
	found, err := s.agentCaller(r.Context(), bearer)
	if errors.Is(err, tokens.ErrForeign) {
		return s.machineCaller(r, bearer)
	}
	return found, err
}

// agentCaller is an agent that has a credential of its own.
func (s *Server) agentCaller(ctx context.Context, credential string) (*caller, error) {
	agent, err := s.agents.authenticate(ctx, credential)
	if errors.Is(err, tokens.ErrExpired) {
		return nil, errBadCredential
	}
	if err != nil {
		return nil, err
	}
	identity := tokens.Agent{Cluster: agent.Spec.ClusterName, Name: agent.Name, UID: agent.UID}
	return &caller{
		agent: tunnel.Agent{Key: agent.Spec.ClusterName, Identity: agent.Namespace + "/" + agent.Name},
		valid: func(ctx context.Context) error {
			_, err := s.agents.find(ctx, identity)
			return err
		},
	}, nil
}

// machineCaller is a machine, which shows the token that it reads its plan with.
func (s *Server) machineCaller(r *http.Request, token string) (*caller, error) {
	if err := s.mayGuess(r, token); err != nil {
		return nil, err
	}
	m, err := s.machines.authenticate(r.Context(), token)
	if err != nil {
		return nil, err
	}
	machine, err := s.joins.ownerMachine(r.Context(), m.bootstrap)
	if err != nil {
		return nil, err
	}
	management, err := s.joins.managementOf(r.Context(), types.NamespacedName{Namespace: machine.Namespace, Name: machine.Spec.ClusterName})
	if err != nil {
		return nil, err
	}
	return &caller{
		agent: tunnel.Agent{Key: management + ":" + machine.Name, Identity: accountIdentity(m.account)},
		valid: func(ctx context.Context) error {
			_, err := s.machines.authenticate(ctx, token)
			return err
		},
	}, nil
}

// accountIdentity is what the sessions of a machine are known by.
func accountIdentity(account types.NamespacedName) string {
	return "serviceaccount/" + account.String()
}

// ownerMachine returns the Machine that an RKEBootstrap is for. Both have to name one another: a reference alone is written by whoever may
// write the one object.
func (g *registrar) ownerMachine(ctx context.Context, bootstrap *rkev1.RKEBootstrap) (*clusterv1.Machine, error) {
	machine, refusal, err := ownership.Machine(ctx, g.client, bootstrap)
	switch {
	case err != nil:
		return nil, err
	case refusal != nil:
		return nil, later(comeAgain, "%s", refusal.Message)
	case machine == nil:
		return nil, later(comeAgain, "waiting for Cluster API to set the owner of RKEBootstrap %s/%s", bootstrap.Namespace, bootstrap.Name)
	}
	return machine, nil
}

// byOwner finds management Clusters by the Cluster that they were made for.
const byOwner = "owner"

func ownerKey(name types.NamespacedName) string { return name.String() }

func indexOwner(object client.Object) []string {
	key := ownership.Key(object)
	if key.Name == "" {
		return nil
	}
	return []string{ownerKey(key)}
}

// managementOf names the management Cluster of a Cluster.
func (g *registrar) managementOf(ctx context.Context, cluster types.NamespacedName) (string, error) {
	var list managementv3.ClusterList
	if err := g.client.List(ctx, &list, client.MatchingFields{byOwner: ownerKey(cluster)}); err != nil {
		return "", fmt.Errorf("looking up the management Cluster of %s: %w", cluster, err)
	}
	for i := range list.Items {
		if !list.Items[i].DeletionTimestamp.IsZero() {
			continue
		}
		// One that was left behind has the same labels.
		owned, err := ownership.ClusterOf(ctx, g.client, &list.Items[i])
		if err != nil {
			return "", err
		}
		if owned != nil {
			return list.Items[i].Name, nil
		}
	}
	return "", later(comeAgain, "waiting for the hub to make the management Cluster of the Cluster %s", cluster)
}
