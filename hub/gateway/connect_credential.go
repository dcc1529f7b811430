package gateway

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"regexp"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	"github.com/drover-dev/drover/hub/connlimit"
	"github.com/drover-dev/drover/hub/ratelimit"
	"github.com/drover-dev/drover/hub/tokens"
)

// maxCredentialRequest bounds the body of a request for a credential.
const maxCredentialRequest = 4 << 10

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
	connlimit.Trust(r.Context())
	writeJSON(w, http.StatusOK, answer)
}

func (s *Server) credential(w http.ResponseWriter, r *http.Request) (*credentialAnswer, error) {
	token := bearerToken(r)
	if token == "" || len(token) > maxTokenLength {
		return nil, refuse(http.StatusUnauthorized, "the registration token or credential is missing: it belongs into the header Authorization, after Bearer")
	}
	id, err := readAgentID(http.MaxBytesReader(w, r.Body, maxCredentialRequest))
	if err != nil {
		return nil, err
	}
	leave, err := s.gate.enter(r, token, s.recognizes(token))
	if err != nil {
		return nil, err
	}
	defer leave()
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
	if err := s.mayGuess(r, token); err != nil {
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
