package tokens

import (
	"errors"
	"slices"
	"time"

	"github.com/go-jose/go-jose/v4/jwt"
	"k8s.io/apimachinery/pkg/types"
)

const (
	agentType     = "drover-agent+jwt"
	agentAudience = "drover-agent"

	// AgentLifetime is how long an agent's credential is good. An agent renews it after agentRenewal.
	AgentLifetime = 24 * time.Hour
	agentRenewal  = AgentLifetime * 2 / 3
	// AgentRenewable is for how long after its end a credential can still be renewed, though nothing else: a cluster that was switched off
	// over a long weekend comes back by itself.
	AgentRenewable = 7 * 24 * time.Hour
)

// Agent is who holds a credential: a TunnelAgent, with the UID by which it is told from a later one of the same name.
type Agent struct {
	// Cluster is the management Cluster, whose namespace the TunnelAgent is in.
	Cluster string
	Name    string
	UID     types.UID
}

// Credential is what an agent is given.
type Credential struct {
	Token                 string
	ExpiresAt, RenewAfter time.Time
}

// AgentClaims is what a credential says.
type AgentClaims struct {
	Agent
	ExpiresAt time.Time
}

type agentClaims struct {
	Cluster string    `json:"cluster"`
	UID     types.UID `json:"uid"`
}

// AgentCredential makes a credential that is good from now on.
func (i *Issuer) AgentCredential(agent Agent) (Credential, error) {
	now := i.now()
	end := now.Add(AgentLifetime).Truncate(time.Second)
	token, err := i.sign(agentType, jwt.Claims{
		Issuer: Name, Audience: jwt.Audience{agentAudience}, Subject: agent.Name, IssuedAt: jwt.NewNumericDate(now), Expiry: jwt.NewNumericDate(end),
	}, agentClaims{Cluster: agent.Cluster, UID: agent.UID})
	if err != nil {
		return Credential{}, err
	}
	return Credential{Token: token, ExpiresAt: end.UTC(), RenewAfter: now.Add(agentRenewal).Truncate(time.Second).UTC()}, nil
}

// VerifyAgent checks a credential. With ErrExpired it returns what the credential said, too. Whether the agent was revoked it cannot tell.
func (i *Issuer) VerifyAgent(token string, now time.Time) (*AgentClaims, error) {
	var standard jwt.Claims
	var own agentClaims
	if err := i.parse(token, agentType, &standard, &own); err != nil {
		return nil, err
	}
	err := check(standard, now)
	if err != nil && !errors.Is(err, ErrExpired) || !slices.Contains(standard.Audience, agentAudience) || standard.Subject == "" || own.Cluster == "" || own.UID == "" {
		return nil, ErrForeign
	}
	return &AgentClaims{
		Agent:     Agent{Cluster: own.Cluster, Name: standard.Subject, UID: own.UID},
		ExpiresAt: standard.Expiry.Time(),
	}, err
}
