package agentsession

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

	"github.com/drover-dev/drover/hub/access/tunnel"
	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/identity/tokens"
	"github.com/drover-dev/drover/hub/util/ownership"
	"github.com/drover-dev/drover/hub/util/response"
)

// recheckDelay is longer than any handshake takes.
const recheckDelay = 15 * time.Second

// Tunnels holds the sessions of agents. A *tunnel.Manager is one.
type Tunnels interface {
	// Serve makes a request the session of an agent, and returns when it has begun.
	Serve(w http.ResponseWriter, r *http.Request, agent tunnel.Agent)
	// Disconnect ends the sessions of agents that match.
	Disconnect(match func(tunnel.Agent) bool, reason string)
}

// Caller is an authenticated agent that opens a tunnel.
type Caller struct {
	agent tunnel.Agent
	// valid authenticates the agent again.
	valid func(context.Context) error
}

// TunnelToken returns what a request for a tunnel shows: the bearer token, or the header of a legacy agent.
func TunnelToken(r *http.Request) string {
	if token := response.BearerToken(r); token != "" {
		return token
	}
	return r.Header.Get(tunnelTokenHeader)
}

// CheckTunnelRequest refuses requests that cannot become a tunnel: 400 for those that are not a websocket, 401 for those without a
// credential.
func CheckTunnelRequest(r *http.Request, token string) error {
	switch {
	case !websocket.IsWebSocketUpgrade(r):
		return response.Errorf(http.StatusBadRequest, "agents open a websocket here")
	case token == "" || len(token) > tokens.MaxLength:
		return response.Errorf(http.StatusUnauthorized,
			"the agent's credential is missing: it belongs into the header Authorization, after Bearer")
	}
	return nil
}

// Authenticate finds the agent that a request for a tunnel comes from: the holder of an agent's credential, a machine with the token of
// its plan ServiceAccount, or a legacy agent with a registration token.
func (a *Agents) Authenticate(r *http.Request, token string) (*Caller, error) {
	if response.BearerToken(r) == "" || strings.HasPrefix(token, legacyAPIPrefix) {
		return a.legacyCaller(r, token)
	}
	found, err := a.agentCaller(r.Context(), token)
	if errors.Is(err, tokens.ErrForeign) {
		return a.machineCaller(r.Context(), token)
	}
	return found, err
}

// Serve serves GET /v3/connect and /v3/connect/register: it makes the request of an authenticated agent its session.
func (a *Agents) Serve(w http.ResponseWriter, r *http.Request, c *Caller) {
	c.agent.Cluster = a.clusterOf(r.Context(), c.agent.Key)
	// The credential may have been revoked while it was authenticated, before there was a session to end.
	time.AfterFunc(recheckDelay, func() { a.recheck(c) })
	a.Tunnels.Serve(w, r, c.agent)
}

// clusterOf is the cluster of a key of sessions as namespace/name; empty where it is not known.
func (a *Agents) clusterOf(ctx context.Context, key string) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(key, legacyAPIPrefix), ":")
	management := &managementv3.Cluster{}
	if err := a.Client.Get(ctx, client.ObjectKey{Name: name}, management); err != nil {
		return ""
	}
	cluster := ownership.Key(management)
	if cluster.Name == "" {
		return ""
	}
	return cluster.String()
}

// agentCaller is an agent that has a credential of its own.
func (a *Agents) agentCaller(ctx context.Context, credential string) (*Caller, error) {
	agent, err := a.authenticate(ctx, credential)
	if errors.Is(err, tokens.ErrExpired) {
		return nil, errBadCredential
	}
	if err != nil {
		return nil, err
	}
	identity := tokens.Agent{Cluster: agent.Spec.ClusterName, Name: agent.Name, UID: agent.UID}
	return &Caller{
		agent: tunnel.Agent{Key: agent.Spec.ClusterName, Identity: agent.Namespace + "/" + agent.Name},
		valid: func(ctx context.Context) error {
			_, err := a.find(ctx, identity)
			return err
		},
	}, nil
}

// machineCaller is a machine, which shows the token of its plan ServiceAccount.
func (a *Agents) machineCaller(ctx context.Context, token string) (*Caller, error) {
	m, err := a.Machines.Authenticate(ctx, token)
	if err != nil {
		return nil, err
	}
	machine, err := a.ownerMachine(ctx, m.Bootstrap)
	if err != nil {
		return nil, err
	}
	key, err := TunnelKey(ctx, a.Client, machine)
	if err != nil {
		return nil, err
	}
	return &Caller{
		agent: tunnel.Agent{Key: key, Identity: accountIdentity(m.Account)},
		valid: func(ctx context.Context) error {
			_, err := a.Machines.Authenticate(ctx, token)
			return err
		},
	}, nil
}

// accountIdentity is the identity of the sessions of a machine.
func accountIdentity(account types.NamespacedName) string {
	return "serviceaccount/" + account.String()
}

// ownerMachine returns the Machine of an RKEBootstrap. Both must refer to one another, since a single reference can be written by whoever
// may write that one object.
func (a *Agents) ownerMachine(ctx context.Context, bootstrap *rkev1.RKEBootstrap) (*clusterv1.Machine, error) {
	machine, refusal, err := ownership.Machine(ctx, a.Client, bootstrap)
	switch {
	case err != nil:
		return nil, err
	case refusal != nil:
		return nil, response.Retry(response.DefaultRetry, "%s", refusal.Message)
	case machine == nil:
		return nil, response.Retry(response.DefaultRetry, "waiting for Cluster API to set the owner of RKEBootstrap %s/%s",
			bootstrap.Namespace, bootstrap.Name)
	}
	return machine, nil
}

// byOwner finds management Clusters by the Cluster that they were created for.
const byOwner = "owner"

// SetupIndexes adds the index that finds the management Cluster of a machine. It must run before the caches start.
func SetupIndexes(ctx context.Context, indexer client.FieldIndexer) error {
	err := indexer.IndexField(ctx, &managementv3.Cluster{}, byOwner, func(object client.Object) []string {
		if key := ownership.Key(object); key.Name != "" {
			return []string{key.String()}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("indexing management Clusters by their Cluster: %w", err)
	}
	return nil
}

// TunnelKey is the key of the sessions of a machine's agent. The error asks to retry while the machine has no management Cluster.
func TunnelKey(ctx context.Context, from client.Reader, machine *clusterv1.Machine) (string, error) {
	cluster := types.NamespacedName{Namespace: machine.Namespace, Name: machine.Spec.ClusterName}
	management, err := managementCluster(ctx, from, cluster)
	return management + ":" + machine.Name, err
}

// managementCluster names the management Cluster of a Cluster of Cluster API.
func managementCluster(ctx context.Context, from client.Reader, cluster types.NamespacedName) (string, error) {
	var list managementv3.ClusterList
	if err := from.List(ctx, &list, client.MatchingFields{byOwner: cluster.String()}); err != nil {
		return "", fmt.Errorf("looking up the management Cluster of %s: %w", cluster, err)
	}
	for i := range list.Items {
		if !list.Items[i].DeletionTimestamp.IsZero() {
			continue
		}
		// A leftover of an earlier Cluster has the same labels.
		owned, err := ownership.ClusterOf(ctx, from, &list.Items[i])
		if err != nil {
			return "", err
		}
		if owned != nil && owned.Provisioning != nil {
			// The machine is in a Cluster of Cluster API, which may have been made for something else than the Cluster of its name.
			capi, _, err := ownership.ClusterAPI(ctx, from, owned.Provisioning)
			if err != nil {
				return "", err
			}
			if capi == nil {
				continue
			}
		}
		if owned != nil {
			return list.Items[i].Name, nil
		}
	}
	return "", response.Retry(response.DefaultRetry, "waiting for the hub to create the management Cluster of the Cluster %s", cluster)
}
