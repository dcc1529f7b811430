package gateway

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

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	"github.com/drover-dev/drover/hub/ratelimit"
	"github.com/drover-dev/drover/hub/tokens"
)

const (
	// maxCredentialRequest bounds the body of a request for a credential.
	maxCredentialRequest = 4 << 10
	// maxAgents is how many agents a cluster may have. Each is an object, and whoever has a registration token can make them.
	maxAgents = 200
)

// agentID is what an agent makes up once to be told from others. Only it knows it: the hub keeps a hash.
var agentID = regexp.MustCompile(`^[a-z0-9-]{16,64}$`)

// credentialAnswer is what an agent gets.
type credentialAnswer struct {
	Cluster    string    `json:"cluster"`
	Agent      string    `json:"agent"`
	Credential string    `json:"credential"`
	ExpiresAt  time.Time `json:"expiresAt"`
	RenewAfter time.Time `json:"renewAfter"`
}

// serveCredential gives an agent a credential of its own, for a registration token or for the credential that it has.
func (s *Server) serveCredential(w http.ResponseWriter, r *http.Request) {
	answer, err := s.credential(w, r)
	if err != nil {
		s.countGuess(r, err)
		s.writePlain(w, r, err)
		return
	}
	writeJSON(w, http.StatusOK, answer)
}

func (s *Server) credential(w http.ResponseWriter, r *http.Request) (*credentialAnswer, error) {
	token := bearerToken(r)
	leave, err := s.gate.enter(r, token)
	if err != nil {
		return nil, err
	}
	defer leave()
	if token == "" || len(token) > maxTokenLength {
		return nil, refuse(http.StatusUnauthorized, "the registration token or credential is missing: it belongs into the header Authorization, after Bearer")
	}
	id, err := readAgentID(http.MaxBytesReader(w, r.Body, maxCredentialRequest))
	if err != nil {
		return nil, err
	}
	if !s.sources.synced() {
		return nil, errStarting
	}
	agent, err := s.agents.renew(r.Context(), token, id)
	if errors.Is(err, tokens.ErrForeign) {
		agent, err = s.exchange(r, token, id)
	}
	if err != nil {
		return nil, err
	}
	issued, err := s.opts.Issuer.AgentCredential(tokens.Agent{Cluster: agent.Spec.ClusterName, Name: agent.Name, UID: agent.UID})
	if err != nil {
		return nil, err
	}
	return &credentialAnswer{
		Cluster: agent.Spec.ClusterName, Agent: agent.Name, Credential: issued.Token, ExpiresAt: issued.ExpiresAt, RenewAfter: issued.RenewAfter,
	}, nil
}

// exchange takes a registration token. A client that keeps coming with wrong ones has to wait.
func (s *Server) exchange(r *http.Request, token, id string) (*managementv3.TunnelAgent, error) {
	if err := s.mayGuess(r); err != nil {
		return nil, err
	}
	if id == "" {
		return nil, refuse(http.StatusBadRequest, `agent: it is missing; send {"agent": "<16 to 64 of a-z, 0-9 and ->"}, the same each time`)
	}
	agent, made, err := s.agents.exchange(r.Context(), token, id)
	if made {
		s.log.Info("Agent was registered", "TunnelAgent", client.ObjectKeyFromObject(agent), "client", ratelimit.ClientAddress(r))
	}
	return agent, err
}

// readAgentID reads the body of a request, which may be empty where a credential is renewed.
func readAgentID(body io.Reader) (string, error) {
	var request struct {
		Agent string `json:"agent"`
	}
	err := json.NewDecoder(body).Decode(&request)
	switch {
	case err != nil && !errors.Is(err, io.EOF):
		return "", refuse(http.StatusBadRequest, `the body must be JSON, {"agent": "<id>"}, of at most %d bytes`, maxCredentialRequest)
	case request.Agent != "" && !agentID.MatchString(request.Agent):
		return "", refuse(http.StatusBadRequest, "agent: it must be 16 to 64 of a-z, 0-9 and -")
	}
	return request.Agent, nil
}

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
