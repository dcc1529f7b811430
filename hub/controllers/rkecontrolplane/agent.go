package rkecontrolplane

import (
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/hub/access/clusteragent"
	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	"github.com/drover-dev/drover/hub/identity/tokens"
	"github.com/drover-dev/drover/hub/plan/render"
)

// Tokens issues registration tokens; implemented by *tokens.Issuer.
type Tokens interface {
	// RegistrationToken returns the hub's token with an ID.
	RegistrationToken(id string) string
	// PublicKeys are the JSON Web Keys that users' tokens are verified with.
	PublicKeys() []byte
}

// findAgentToken finds the registration token of the cluster-agent. First plans wait for it, so that machines do not get two plans in a
// row; later ones leave the agent as it is.
func (r *Reconciler) findAgentToken(ctx context.Context, s *scope) error {
	if r.Tokens == nil || s.controlPlane.Spec.UnmanagedConfig {
		return nil
	}
	if s.management != "" {
		key := client.ObjectKey{Namespace: s.management, Name: managementv3.TokenSecretPrefix + managementv3.AgentTokenName}
		secret, err := r.objects.Secret(ctx, r.Cache, r.Client, key)
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("reading the registration token of the cluster-agent: %w", err)
		}
		if err == nil {
			s.agentToken, s.agentKeys = r.registrationToken(secret), r.Tokens.PublicKeys()
		}
	}
	switch {
	case s.agentToken != "" || s.delivered():
	case s.management == "":
		s.waitFor(reasonWaitingForAgentToken, "Waiting for the management Cluster to be created, which the cluster-agent connects to")
	default:
		s.waitFor(reasonWaitingForAgentToken, "Waiting for the registration token of the cluster-agent to be created")
	}
	return nil
}

// registrationToken returns the token of a Secret with its ID and hash, or the token itself where another hub's Secret has it; empty if the
// hash is that of another hub's token.
func (r *Reconciler) registrationToken(secret *corev1.Secret) string {
	if token := secret.Data[managementv3.TokenKey]; len(token) > 0 {
		return string(token)
	}
	token := r.Tokens.RegistrationToken(string(secret.Data[managementv3.TokenIDKey]))
	if !tokens.SameHash(tokens.Hash(token), string(secret.Data[managementv3.TokenHashKey])) {
		return ""
	}
	return token
}

// agent is the cluster-agent in plans; nil while its token is unknown.
func (s *scope) agent() *render.Agent {
	if s.agentToken == "" {
		return nil
	}
	agent := &render.Agent{Token: s.agentToken, PublicKeys: s.agentKeys, Replicas: 1}
	machines := 0
	for _, m := range s.machines {
		if m.state.Deleting {
			continue
		}
		machines++
		if m.inputs.ControlPlane {
			for _, taint := range render.NodeTaints(s.inputs, m.inputs) {
				if !slices.Contains(agent.ControlPlaneTaints, taint) {
					agent.ControlPlaneTaints = append(agent.ControlPlaneTaints, taint)
				}
			}
		}
	}
	if machines > 1 {
		agent.Replicas = 2
	}
	return agent
}

// readDeliveredAgent is findAgentToken for a preview: it takes the token, which only the hub can make, from the manifest in a delivered
// plan.
func readDeliveredAgent(_ context.Context, s *scope) error {
	for _, m := range s.machines {
		for _, f := range m.report.Delivered.Files {
			if !strings.HasSuffix(f.Path, "/"+render.AgentManifest) {
				continue
			}
			manifest, err := base64.StdEncoding.DecodeString(f.Content)
			if err != nil {
				continue
			}
			if s.agentToken, s.agentKeys = clusteragent.Parse(manifest); len(s.agentKeys) == 0 {
				s.agentKeys = []byte("{}") // the authorized cluster endpoint is only now enabled
			}
			return nil
		}
	}
	return nil
}
