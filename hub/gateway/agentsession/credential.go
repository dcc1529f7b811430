// Package agentsession gives agents their credentials, lets them open tunnels, and ends the sessions of those whose credential is
// revoked. Agents are the cluster-agents of clusters and the agents of machines; legacy agents, made for another hub, show the
// registration token of their cluster.
//
// It writes TunnelAgents, which are the record of issued credentials. It must not hold sessions: package tunnel does.
package agentsession

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	"github.com/drover-dev/drover/hub/gateway/plandelivery"
	"github.com/drover-dev/drover/hub/gateway/registration"
	"github.com/drover-dev/drover/hub/gateway/secretcache"
	"github.com/drover-dev/drover/hub/identity/tokens"
	"github.com/drover-dev/drover/hub/util/fieldowner"
	"github.com/drover-dev/drover/hub/util/ratelimit"
	"github.com/drover-dev/drover/hub/util/response"
)

const (
	// MaxCredentialRequest bounds the body of a request for a credential, in bytes.
	MaxCredentialRequest = 4 << 10
	// maxAgents is how many agents a cluster may have. Each is an object, and whoever has a registration token can create them.
	maxAgents = 200
)

// agentID is what an agent generates once to be told from others. Only it knows it: the hub keeps a hash.
var agentID = regexp.MustCompile(`^[a-z0-9-]{16,64}$`)

// errBadCredential is returned for every invalid credential of this hub. The reason is not the caller's business.
var errBadCredential = response.Errorf(http.StatusUnauthorized,
	"the agent's credential is unknown, expired or revoked; an agent that has a registration token can get another one with it")

// Options are what Agents work with. All fields are needed.
type Options struct {
	// Issuer signs and checks credentials.
	Issuer *tokens.Issuer
	// Registrar knows registration tokens.
	Registrar *registration.Registrar
	// Machines authenticates machines by the token of their plan account.
	Machines *plandelivery.Authenticator
	// Secrets holds the registration tokens.
	Secrets *secretcache.Cache
	// Client reads from caches and writes with the hub's identity.
	Client client.Client
	// Live reads from the API server.
	Live client.Reader
	// Tunnels takes the sessions.
	Tunnels Tunnels
	// Logger of the sessions.
	Logger logr.Logger
}

// Agents serves agents. Its errors are *response.Error, or faults of the hub.
type Agents struct{ Options }

// Credential is the answer to a request for a credential.
type Credential struct {
	// Cluster is the name of the management Cluster.
	Cluster string `json:"cluster"`
	// Agent is the name of the TunnelAgent in the namespace of the management Cluster.
	Agent string `json:"agent"`
	// Credential is a JSON Web Token.
	Credential string `json:"credential"`
	// ExpiresAt is when the credential expires.
	ExpiresAt time.Time `json:"expiresAt"`
	// RenewAfter is when the agent should renew it.
	RenewAfter time.Time `json:"renewAfter"`
}

// Recognizes reports from memory whether a token is one of an agent or a machine: it decides only with whom the caller shares a rate limit.
func (a *Agents) Recognizes(token string) bool {
	if token == "" || len(token) > tokens.MaxLength {
		return false
	}
	if a.Machines.Recognizes(token) || a.Registrar.RecognizesToken(strings.TrimPrefix(token, legacyAPIPrefix)) {
		return true
	}
	_, err := a.Issuer.VerifyAgent(token, time.Now())
	return err == nil || errors.Is(err, tokens.ErrExpired)
}

// IsGuess reports whether an error is the answer to a token that was never valid.
func IsGuess(err error) bool {
	return errors.Is(err, registration.ErrUnknownToken) || errors.Is(err, plandelivery.ErrUnauthorized)
}

// Issue serves POST /v3/connect/credential: it gives an agent a credential of its own, for a registration token and {"agent": "<id>"} in
// the body, or for the credential that it has.
func (a *Agents) Issue(r *http.Request, token string) (*Credential, error) {
	id, err := readAgentID(r.Body)
	if err != nil {
		return nil, err
	}
	agent, err := a.renew(r.Context(), token, id)
	if errors.Is(err, tokens.ErrForeign) {
		agent, err = a.register(r, token, id)
	}
	if err != nil {
		return nil, err
	}
	issued, err := a.Issuer.AgentCredential(tokens.Agent{Cluster: agent.Spec.ClusterName, Name: agent.Name, UID: agent.UID})
	if err != nil {
		return nil, err
	}
	return &Credential{
		Cluster: agent.Spec.ClusterName, Agent: agent.Name, Credential: issued.Token, ExpiresAt: issued.ExpiresAt, RenewAfter: issued.RenewAfter,
	}, nil
}

// readAgentID reads the body of a request, which may be empty if a credential is renewed.
func readAgentID(body io.Reader) (string, error) {
	var request struct {
		Agent string `json:"agent"`
	}
	err := json.NewDecoder(body).Decode(&request)
	switch {
	case err != nil && !errors.Is(err, io.EOF):
		return "", response.Errorf(http.StatusBadRequest, `the body must be JSON, {"agent": "<id>"}, of at most %d bytes`, MaxCredentialRequest)
	case request.Agent != "" && !agentID.MatchString(request.Agent):
		return "", response.Errorf(http.StatusBadRequest, "agent: it must be 16 to 64 of a-z, 0-9 and -")
	}
	return request.Agent, nil
}

// authenticate returns the TunnelAgent of a credential, or tokens.ErrForeign for anything that this hub has not issued.
func (a *Agents) authenticate(ctx context.Context, credential string) (*managementv3.TunnelAgent, error) {
	claims, err := a.Issuer.VerifyAgent(credential, time.Now())
	if err != nil {
		return nil, err
	}
	return a.find(ctx, claims.Agent)
}

// find returns the TunnelAgent that a credential was made for, if it is still the same one.
func (a *Agents) find(ctx context.Context, named tokens.Agent) (*managementv3.TunnelAgent, error) {
	agent := &managementv3.TunnelAgent{}
	key := client.ObjectKey{Namespace: named.Cluster, Name: named.Name}
	err := a.Client.Get(ctx, key, agent)
	if apierrors.IsNotFound(err) || err == nil && agent.UID != named.UID {
		// An agent that has just registered may be ahead of the cache.
		err = a.Live.Get(ctx, key, agent)
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("reading TunnelAgent %s: %w", key, err)
	}
	if err != nil || agent.UID != named.UID || !agent.DeletionTimestamp.IsZero() || agent.Spec.ClusterName != agent.Namespace {
		return nil, errBadCredential
	}
	return agent, nil
}

// agentName is the name of the TunnelAgent of an id.
func agentName(cluster, id string) string {
	return "agent-" + tokens.Hash(cluster + "/" + id)[:20]
}

// register finds or creates the TunnelAgent of an agent that shows a registration token.
func (a *Agents) register(r *http.Request, token, id string) (*managementv3.TunnelAgent, error) {
	ctx := r.Context()
	if id == "" {
		return nil, response.Errorf(http.StatusBadRequest,
			`agent: it is missing; send {"agent": "<16 to 64 of a-z, 0-9 and ->"}, the same each time`)
	}
	registration, err := a.Registrar.Tokens.Find(ctx, token, managementv3.AgentsPurpose)
	if err != nil {
		return nil, err
	}
	cluster := registration.Spec.ClusterName
	agent := &managementv3.TunnelAgent{}
	key := client.ObjectKey{Namespace: cluster, Name: agentName(cluster, id)}
	err = a.Live.Get(ctx, key, agent)
	switch {
	case err == nil && !agent.DeletionTimestamp.IsZero():
		return nil, response.Retry(response.DefaultRetry,
			"waiting for the previous registration of this agent to be removed: TunnelAgent %s is being deleted", key)
	case err == nil:
		return agent, nil
	case !apierrors.IsNotFound(err):
		return nil, fmt.Errorf("reading TunnelAgent %s: %w", key, err)
	}
	management := &managementv3.Cluster{}
	if err := a.Live.Get(ctx, client.ObjectKey{Name: cluster}, management); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("reading the management Cluster %s: %w", cluster, err)
	} else if err != nil || !management.DeletionTimestamp.IsZero() {
		return nil, response.Errorf(http.StatusForbidden, "the cluster %s of this registration token has been deleted", cluster)
	}
	if err := a.checkCapacity(ctx, cluster); err != nil {
		return nil, err
	}
	if err := a.Registrar.Tokens.Use(ctx, registration, "agent "+id); err != nil {
		return nil, err
	}
	agent = &managementv3.TunnelAgent{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: key.Namespace, Name: key.Name,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(management, managementv3.GroupVersion.WithKind("Cluster"))},
		},
		Spec: managementv3.TunnelAgentSpec{ClusterName: cluster, RegistrationTokenName: registration.Name},
	}
	err = a.Client.Create(ctx, agent, fieldowner.Gateway)
	if apierrors.IsAlreadyExists(err) {
		return nil, response.Retry(time.Second, "the hub answered another request of this agent at the same time")
	}
	if err != nil {
		return nil, fmt.Errorf("creating TunnelAgent %s: %w", key, err)
	}
	a.Logger.Info("Agent registered", "TunnelAgent", key, "client", ratelimit.ClientAddress(r))
	return agent, nil
}

// checkCapacity refuses one more agent of a cluster that has maxAgents.
func (a *Agents) checkCapacity(ctx context.Context, cluster string) error {
	var list managementv3.TunnelAgentList
	if err := a.Client.List(ctx, &list, client.InNamespace(cluster)); err != nil {
		return fmt.Errorf("listing the agents of %s: %w", cluster, err)
	}
	if len(list.Items) >= maxAgents {
		return response.Errorf(http.StatusForbidden, "the cluster %s has %d agents already; delete unused TunnelAgents in the namespace %s",
			cluster, len(list.Items), cluster)
	}
	return nil
}

// IsJWT reports whether a token looks like a credential of an agent, of which the signature is verified without asking the API.
func IsJWT(token string) bool { return strings.Count(token, ".") >= 2 }

// renew returns the TunnelAgent of an agent that shows its credential, which may have expired some days ago. The error is
// tokens.ErrForeign for a token that is not a credential.
func (a *Agents) renew(ctx context.Context, credential, id string) (*managementv3.TunnelAgent, error) {
	claims, err := a.Issuer.VerifyAgent(credential, time.Now())
	if errors.Is(err, tokens.ErrExpired) && time.Now().Before(claims.ExpiresAt.Add(tokens.AgentRenewable)) {
		err = nil
	}
	switch {
	case errors.Is(err, tokens.ErrForeign) && !IsJWT(credential):
		return nil, tokens.ErrForeign
	case err != nil:
		return nil, errBadCredential
	}
	agent, err := a.find(ctx, claims.Agent)
	if err != nil {
		return nil, err
	}
	if id != "" && agent.Name != agentName(agent.Spec.ClusterName, id) {
		return nil, response.Errorf(http.StatusForbidden,
			"agent: this credential was issued for another agent; send the id that it was issued for, or none")
	}
	return agent, nil
}
