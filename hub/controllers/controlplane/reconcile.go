package controlplane

import (
	"context"

	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/hub/ownership"
	"github.com/drover-dev/drover/hub/rollout"
)

// The reasons of conditions beyond those of hub/rollout.
const (
	reasonVersionInvalid    = "VersionInvalid"
	reasonWaitingForCluster = "WaitingForCluster"
	reasonTokensLost        = "TokensLost"
	reasonCALost            = "CertificateAuthorityLost"
	reasonWaitingForNodes   = "WaitingForNodes"

	reasonWaitingForAgentToken = "WaitingForAgentToken"
)

// phase is a step of a pass. It sets the scope's wait where the pass cannot go on.
type phase func(context.Context, *scope) error

// reconcileNormal runs the phases until one has to wait or fails, since each needs what those before have found.
func (r *Reconciler) reconcileNormal(ctx context.Context, s *scope) error {
	for _, run := range []phase{
		findCluster,
		r.findInfraCluster,
		r.loadMachines,
		waitForInfrastructure,
		r.findManagement,
		r.findRelease,
		r.ensureTokens,
		r.ensureCA,
		r.findAgentToken,
		r.readReferences,
		r.plan,
		r.deliver,
		r.ensureKubeconfig,
		r.reportMachines,
		r.ensureEndpoint,
	} {
		if err := run(ctx, s); err != nil {
			return err
		}
		if s.wait != (rollout.Wait{}) {
			return nil
		}
	}
	return nil
}

func findCluster(_ context.Context, s *scope) error {
	switch {
	case s.refused != nil:
		s.wait = rollout.Wait{Reason: s.refused.Reason, Message: s.refused.Message}
	case s.cluster == nil:
		// What no Cluster owns has no Machines, and needs none to be read.
		s.loaded = true
		s.wait = rollout.Wait{Reason: reasonWaitingForCluster, Message: "Waiting for the Cluster of Cluster API to take over the RKEControlPlane"}
	}
	return nil
}

func waitForInfrastructure(_ context.Context, s *scope) error {
	if !ptr.Deref(s.cluster.Status.Initialization.InfrastructureProvisioned, false) {
		s.wait = rollout.Wait{Reason: rollout.ReasonWaitingForInfrastructure, Message: "Waiting for the infrastructure of the cluster: " +
			s.cluster.Spec.InfrastructureRef.Kind + " " + s.cluster.Spec.InfrastructureRef.Name + " is not provisioned yet"}
	}
	return nil
}

// findManagement finds the cluster's management Cluster. Nothing is done for a cluster that names another one's: the name leads to tokens and
// to the tunnel of agents.
func (r *Reconciler) findManagement(ctx context.Context, s *scope) error {
	name := s.controlPlane.ManagementName()
	if name == "" {
		return nil
	}
	_, refusal, err := ownership.ManagementCluster(ctx, r.Client, client.ObjectKeyFromObject(s.cluster), name)
	if err != nil {
		return err
	}
	if refusal != nil {
		s.wait = rollout.Wait{Reason: refusal.Reason, Message: refusal.Message}
		return nil
	}
	s.management = name
	return nil
}

func (r *Reconciler) findRelease(_ context.Context, s *scope) error {
	found, err := r.Releases.Lookup(s.controlPlane.Spec.DesiredVersion())
	if err != nil {
		s.wait = rollout.Wait{Reason: reasonVersionInvalid, Message: err.Error()}
		return nil
	}
	s.release = found
	return nil
}
