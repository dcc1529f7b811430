package controlplane

import (
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	"github.com/drover-dev/drover/hub/clusteragent"
	"github.com/drover-dev/drover/hub/render"
	"github.com/drover-dev/drover/hub/rollout"
	"github.com/drover-dev/drover/hub/tokens"
)

// Tokens are what the hub vouches with. A *tokens.Issuer is one.
type Tokens interface {
	// RegistrationToken is the hub's token of an id.
	RegistrationToken(id string) string
	// PublicKeys are what tokens for users are verified with.
	PublicKeys() []byte
}

// findAgentToken finds what the cluster-agent introduces itself with. The first plans wait for it, so that machines are not given two plans in
// a row; later ones leave the agent as it is.
func (r *Reconciler) findAgentToken(ctx context.Context, s *scope) error {
	if r.Tokens == nil || s.controlPlane.Spec.UnmanagedConfig {
		return nil
	}
	namespace := s.management
	if namespace != "" {
		key := client.ObjectKey{Namespace: namespace, Name: managementv3.TokenSecretPrefix + managementv3.AgentTokenName}
		secret, err := r.contents.secret(ctx, r.Cache, r.Client, key)
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("reading the registration token of the cluster-agent: %w", err)
		}
		if err == nil {
			s.agentToken, s.agentKeys = r.agentToken(secret), r.Tokens.PublicKeys()
		}
	}
	if s.agentToken == "" && !s.delivered() {
		s.wait = rollout.Wait{Reason: reasonWaitingForAgentToken, Message: "Waiting for the registration token of the cluster-agent to be made"}
		if namespace == "" {
			s.wait.Message = "Waiting for the management Cluster to be made, as whose agent the cluster-agent connects"
		}
	}
	return nil
}

// agentToken makes the token of a Secret that holds by what it is known. A Secret of another hub's may hold the token itself.
func (r *Reconciler) agentToken(secret *corev1.Secret) string {
	if token := secret.Data[managementv3.TokenKey]; len(token) > 0 {
		return string(token)
	}
	token := r.Tokens.RegistrationToken(string(secret.Data[managementv3.TokenIDKey]))
	if !tokens.SameHash(tokens.Hash(token), string(secret.Data[managementv3.TokenHashKey])) {
		return ""
	}
	return token
}

// agent is what plans say of the cluster-agent; nil while that is not known.
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
		if m.facts.ControlPlane {
			for _, taint := range render.NodeTaints(s.inputs, m.facts) {
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

// readDeliveredAgent takes from a plan what the hub alone can make of the cluster-agent's manifest, for who only wants to see what would change.
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
				s.agentKeys = []byte("{}") // an endpoint that is only now asked for
			}
			return nil
		}
	}
	return nil
}

// tokenToControlPlane maps the Secret of a registration token to the control plane of its cluster.
func (r *Reconciler) tokenToControlPlane(ctx context.Context, object client.Object) []ctrl.Request {
	management := &managementv3.Cluster{}
	if err := r.Client.Get(ctx, client.ObjectKey{Name: object.GetNamespace()}, management); err != nil {
		return nil
	}
	return r.managementToControlPlane(ctx, management)
}
