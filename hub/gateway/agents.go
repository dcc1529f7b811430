package gateway

import (
	"context"
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	"github.com/drover-dev/drover/hub/tokens"
)

// agents knows the agents that have a credential of their own.
type agents struct {
	issuer *tokens.Issuer
	tokens *registrationTokens
	// client reads TunnelAgents as of a moment ago, live as of now.
	client client.Client
	live   client.Reader
	now    func() time.Time
}

// errBadCredential is every reason why a credential is none. Which it was is not the caller's business.
var errBadCredential = refuse(http.StatusUnauthorized,
	"the agent's credential is unknown, expired or revoked; an agent that has a registration token can get another one with it")

// authenticate returns the TunnelAgent of a credential, or tokens.ErrForeign for what is none of this hub's.
func (a *agents) authenticate(ctx context.Context, credential string) (*managementv3.TunnelAgent, error) {
	claims, err := a.issuer.VerifyAgent(credential, a.now())
	if err != nil {
		return nil, err
	}
	return a.find(ctx, claims.Agent)
}

// find returns the TunnelAgent that a credential was made for, if it is still the same one.
func (a *agents) find(ctx context.Context, named tokens.Agent) (*managementv3.TunnelAgent, error) {
	agent := &managementv3.TunnelAgent{}
	key := client.ObjectKey{Namespace: named.Cluster, Name: named.Name}
	err := a.client.Get(ctx, key, agent)
	if apierrors.IsNotFound(err) || err == nil && agent.UID != named.UID {
		// An agent that has just registered may be ahead of the cache.
		err = a.live.Get(ctx, key, agent)
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("reading TunnelAgent %s: %w", key, err)
	}
	if err != nil || agent.UID != named.UID || !agent.DeletionTimestamp.IsZero() || agent.Spec.ClusterName != agent.Namespace {
		return nil, errBadCredential
	}
	return agent, nil
}
