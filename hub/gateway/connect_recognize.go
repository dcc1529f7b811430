package gateway

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/tokens"
)

// Whoever shows what the hub has given out is limited apart from strangers, who may be many behind one address. That is looked at before
// anything is limited, and so must not ask anybody: it is no decision about what the caller may do.

// recognizes tells whether a token was given out by the hub and is not revoked, as far as is known here.
func (s *Server) recognizes(token string) bool {
	if token == "" || len(token) > maxTokenLength {
		return false
	}
	if s.machines.known(token) || s.joins.recognizes(strings.TrimPrefix(token, stockAPIPrefix)) {
		return true
	}
	_, err := s.opts.Issuer.VerifyAgent(token, s.agents.now())
	return err == nil || errors.Is(err, tokens.ErrExpired)
}

// recognizes tells whether a token is one to register with.
func (g *registrar) recognizes(token string) bool {
	if token == "" || len(token) > maxTokenLength {
		return false
	}
	if made, err := g.bootstrapSecret(token); err == nil && made != nil {
		return true
	}
	return g.tokens.recognizes(token)
}

// recognizesStored tells whether a machine shows the secret of one that is known.
func (g *registrar) recognizesStored(ctx context.Context, headers http.Header) bool {
	if !g.sources.synced() {
		return false
	}
	registration, err := parseRegistration(headers)
	if err != nil || registration.SecretHash == "" {
		return false
	}
	var known rkev1.RKEBootstrapList
	err = g.client.List(ctx, &known, client.MatchingFields{byMachineSecret: registration.SecretHash})
	return err == nil && len(known.Items) > 0
}

// recognizes tells whether a registration token is there. It may have expired, or be for something else.
func (t *registrationTokens) recognizes(token string) bool {
	given := tokens.Known{ID: tokens.RegistrationID(token), Hash: tokens.Hash(token)}
	return t.match(given) != nil
}
