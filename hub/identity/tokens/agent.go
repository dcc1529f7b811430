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

	// AgentLifetime is how long an agent's credential is valid. An agent renews it after agentRenewal.
	AgentLifetime = 24 * time.Hour
	agentRenewal  = AgentLifetime * 2 / 3
	// AgentRenewable is how long after its expiry a credential can still be renewed, though nothing else: a cluster that was switched off
	// over a long weekend reconnects without help.
	AgentRenewable = 7 * 24 * time.Hour
)

// Agent is the holder of a credential: a TunnelAgent, with its UID since a later one may have the same name.
type Agent struct {
	// Cluster is the management Cluster, whose namespace the TunnelAgent is in.
	Cluster string
	Name    string
	UID     types.UID
}

// Credential is an issued credential.
type Credential struct {
	Token                 string
	ExpiresAt, RenewAfter time.Time
}

// AgentClaims are the verified claims of a credential.
type AgentClaims struct {
	Agent
	ExpiresAt time.Time
}

type agentClaims struct {
	Cluster string    `json:"cluster"`
	UID     types.UID `json:"uid"`
}

// AgentCredential issues a credential.
func (i *Issuer) AgentCredential(agent Agent) (Credential, error) {
	now := i.now()
	end := now.Add(AgentLifetime).Truncate(time.Second)
	token, err := i.sign(agentType, jwt.Claims{
		Issuer: Name, Audience: jwt.Audience{agentAudience}, Subject: agent.Name,
		IssuedAt: jwt.NewNumericDate(now), Expiry: jwt.NewNumericDate(end),
	}, agentClaims{Cluster: agent.Cluster, UID: agent.UID})
	if err != nil {
		return Credential{}, err
	}
	return Credential{Token: token, ExpiresAt: end.UTC(), RenewAfter: now.Add(agentRenewal).Truncate(time.Second).UTC()}, nil
}

// VerifyAgent verifies a credential. With ErrExpired it returns the claims too. It does not know whether the agent was revoked.
func (i *Issuer) VerifyAgent(token string, now time.Time) (*AgentClaims, error) {
	var standard jwt.Claims
	var own agentClaims
	if err := i.parse(token, agentType, &standard, &own); err != nil {
		return nil, err
	}
	err := check(standard, now)
	if err != nil && !errors.Is(err, ErrExpired) || !slices.Contains(standard.Audience, agentAudience) ||
		standard.Subject == "" || own.Cluster == "" || own.UID == "" {
		return nil, ErrForeign
	}
	return &AgentClaims{
		Agent:     Agent{Cluster: own.Cluster, Name: standard.Subject, UID: own.UID},
		ExpiresAt: standard.Expiry.Time(),
	}, err
}
