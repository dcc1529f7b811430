package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// maxAgents is how many agents a cluster may have. Each is an object, and whoever has a registration token can make them.
const maxAgents = 200

// agentName is the name of the TunnelAgent of an id.
func agentName(cluster, id string) string {
	return "agent-" + tokens.Hash(cluster + "/" + id)[:20]
}

// exchange finds or makes the TunnelAgent of an agent that shows a registration token.
func (a *agents) exchange(ctx context.Context, token, id string) (agent *managementv3.TunnelAgent, made bool, err error) {
	registration, err := a.tokens.find(ctx, token, managementv3.AgentsPurpose)
	if err != nil {
		return nil, false, err
	}
	cluster := registration.Spec.ClusterName
	agent = &managementv3.TunnelAgent{}
	key := client.ObjectKey{Namespace: cluster, Name: agentName(cluster, id)}
	err = a.live.Get(ctx, key, agent)
	switch {
	case err == nil && !agent.DeletionTimestamp.IsZero():
		return nil, false, later(comeAgain, "waiting for the former registration of this agent to be removed: TunnelAgent %s is being deleted", key)
	case err == nil:
		return agent, false, nil
	case !apierrors.IsNotFound(err):
		return nil, false, fmt.Errorf("reading TunnelAgent %s: %w", key, err)
	}
	management := &managementv3.Cluster{}
	if err := a.live.Get(ctx, client.ObjectKey{Name: cluster}, management); client.IgnoreNotFound(err) != nil {
		return nil, false, fmt.Errorf("reading the management Cluster %s: %w", cluster, err)
	} else if err != nil || !management.DeletionTimestamp.IsZero() {
		return nil, false, refuse(http.StatusForbidden, "the cluster %s of this registration token has been deleted", cluster)
	}
	if err := a.room(ctx, cluster); err != nil {
		return nil, false, err
	}
	if err := a.tokens.use(ctx, registration, "agent "+id); err != nil {
		return nil, false, err
	}
	agent = &managementv3.TunnelAgent{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: key.Namespace, Name: key.Name,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(management, managementv3.GroupVersion.WithKind("Cluster"))},
		},
		Spec: managementv3.TunnelAgentSpec{ClusterName: cluster, RegistrationTokenName: registration.Name},
	}
	err = a.client.Create(ctx, agent, fieldOwner)
	if apierrors.IsAlreadyExists(err) {
		return nil, false, later(time.Second, "the hub answered another request of this agent at the same moment")
	}
	if err != nil {
		return nil, false, fmt.Errorf("creating TunnelAgent %s: %w", key, err)
	}
	return agent, true, nil
}

// room refuses one more agent of a cluster that has plenty.
func (a *agents) room(ctx context.Context, cluster string) error {
	var list managementv3.TunnelAgentList
	if err := a.client.List(ctx, &list, client.InNamespace(cluster)); err != nil {
		return fmt.Errorf("listing the agents of %s: %w", cluster, err)
	}
	if len(list.Items) >= maxAgents {
		return refuse(http.StatusForbidden, "the cluster %s has %d agents already; delete TunnelAgents in the namespace %s that are no longer there", cluster, len(list.Items), cluster)
	}
	return nil
}

// renew returns the TunnelAgent of an agent that shows its credential, which may have expired some days ago. The error is tokens.ErrForeign
// for what is no credential.
func (a *agents) renew(ctx context.Context, credential, id string) (*managementv3.TunnelAgent, error) {
	claims, err := a.issuer.VerifyAgent(credential, a.now())
	if errors.Is(err, tokens.ErrExpired) && a.now().Before(claims.ExpiresAt.Add(tokens.AgentRenewable)) {
		err = nil
	}
	switch {
	case errors.Is(err, tokens.ErrForeign) && strings.Count(credential, ".") < 2:
		return nil, tokens.ErrForeign
	case err != nil:
		return nil, errBadCredential
	}
	agent, err := a.find(ctx, claims.Agent)
	if err != nil {
		return nil, err
	}
	if id != "" && agent.Name != agentName(agent.Spec.ClusterName, id) {
		return nil, refuse(http.StatusForbidden, "agent: this credential is of another agent; send the id that it was made for, or none")
	}
	return agent, nil
}
