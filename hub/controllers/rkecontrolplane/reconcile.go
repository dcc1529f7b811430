package rkecontrolplane

import (
	"context"
	"fmt"
	"slices"

	kerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/plan/reasons"
	"github.com/drover-dev/drover/hub/plan/render"
	"github.com/drover-dev/drover/hub/plan/rollout"
	"github.com/drover-dev/drover/hub/util/message"
	"github.com/drover-dev/drover/hub/util/objects"
	"github.com/drover-dev/drover/hub/util/ownership"
)

// The reasons of conditions beyond those of hub/plan/rollout. They are API.
const (
	reasonWaitingForCluster     = "WaitingForCluster"
	reasonWaitingForNodes       = "WaitingForNodes"
	reasonWaitingForAgentToken  = "WaitingForAgentToken"
	reasonWaitingForReleaseData = "WaitingForReleaseData"
)

// phase is a step of a reconcile. It sets the scope's wait where the reconcile cannot go on.
type phase func(context.Context, *scope) error

// reconcileNormal runs the phases until one has to wait or fails: each needs what the ones before have set. Where one waits before the
// operations of the cluster are read, they say so.
func (r *Reconciler) reconcileNormal(ctx context.Context, s *scope) error {
	err := run(ctx, s,
		findCluster,
		r.findInfraCluster,
		r.loadMachines,
		r.skipPreflightChecks,
		r.findMetal3,
		waitForInfrastructure,
		r.findManagement,
		r.findRelease,
		r.ensureTokens,
		r.ensureCA,
		r.findAgentToken,
		r.readReferences,
	)
	if err != nil {
		return err
	}
	if s.wait != (rollout.Wait{}) {
		// Whether the control plane is available does not wait.
		r.readNodes(ctx, s)
		// New machines do not join meanwhile.
		return kerrors.NewAggregate([]error{r.holdOperations(ctx, s, s.wait), r.markMachines(ctx, s, s.protectWaiting)})
	}
	return run(ctx, s,
		r.findOperation,
		r.rotateTokens,
		r.restoreTokens,
		r.plan,
		r.writeOperation,
		r.protectMachines,
		r.deliver,
		r.watchCertificates,
		r.deleteStrayNodes,
		r.deleteSnapshot,
		r.ensureKubeconfig,
		r.updateMachines,
		r.ensureEndpoint,
	)
}

func run(ctx context.Context, s *scope, phases ...phase) error {
	for _, phase := range phases {
		if err := phase(ctx, s); err != nil || s.wait != (rollout.Wait{}) {
			return err
		}
	}
	return nil
}

func findCluster(_ context.Context, s *scope) error {
	switch {
	case s.refused != nil:
		s.waitFor(s.refused.Reason, s.refused.Message)
	case s.cluster == nil:
		// An RKEControlPlane without a Cluster has no Machines that would have to be read.
		s.loaded = true
		s.waitFor(reasonWaitingForCluster, "Waiting for Cluster API to set the Cluster as the owner of the RKEControlPlane")
	}
	return nil
}

func waitForInfrastructure(_ context.Context, s *scope) error {
	if !ptr.Deref(s.cluster.Status.Initialization.InfrastructureProvisioned, false) {
		ref := s.cluster.Spec.InfrastructureRef
		s.waitFor(rollout.ReasonWaitingForInfrastructure,
			"Waiting for the infrastructure of the cluster: "+ref.Kind+" "+ref.Name+" is not provisioned yet")
	}
	return nil
}

// findManagement finds the cluster's management Cluster. A cluster that names the one of another cluster gets nothing: the name leads to
// tokens and to the tunnel of its agent.
func (r *Reconciler) findManagement(ctx context.Context, s *scope) error {
	name := s.controlPlane.ManagementName()
	if name == "" {
		return nil
	}
	_, refusal, err := ownership.ManagementCluster(ctx, r.Client, client.ObjectKeyFromObject(s.cluster), name)
	switch {
	case err != nil:
		return err
	case refusal != nil:
		s.waitFor(refusal.Reason, refusal.Message)
	default:
		s.management = name
	}
	return nil
}

func (r *Reconciler) findRelease(_ context.Context, s *scope) (err error) {
	desired := s.controlPlane.Spec.DesiredVersion()
	if s.release, err = r.Releases.Lookup(desired); err != nil {
		s.waitFor(reasons.VersionInvalid, err.Error())
		return nil
	}
	if runtime := s.otherRuntime(); runtime != "" {
		s.waitFor(reasons.VersionInvalid, fmt.Sprintf("spec.kubernetesVersion: %q is a release of %s, and the cluster runs %s, which cannot "+
			"be changed; set it to a release of %s", desired, s.release.Runtime, runtime, runtime))
		return nil
	}
	if r.Releases.Awaited() && s.delivered() && s.needsReleaseData() {
		s.waitFor(reasonWaitingForReleaseData, fmt.Sprintf("Waiting for the release data of the hub (--release-data), which cannot be fetched "+
			"since the hub was started: without it, %s might get another configuration, and restart with that", desired))
	}
	return nil
}

// needsReleaseData reports whether a configuration may be another one without release data beyond what the hub was built with: what is not
// known is left out, or handed on as it is.
func (s *scope) needsReleaseData() bool {
	if s.release.Assumed != "" {
		return true
	}
	unknown := func(config rkev1.GenericMap) bool {
		for key := range config.Data {
			if _, known := s.release.Arg(key, true); !known {
				return true
			}
		}
		return false
	}
	spec := &s.controlPlane.Spec
	return unknown(spec.MachineGlobalConfig) || slices.ContainsFunc(spec.MachineSelectorConfig, func(c rkev1.RKESystemConfig) bool {
		return unknown(c.Config)
	})
}

// otherRuntime is the one that the machines of a started cluster were given, where no machine has that of the desired version; empty for
// none. A machine with both would have two sets of services, and without the configuration of the one that has the data.
func (s *scope) otherRuntime() (other string) {
	if !s.bootstrapped() {
		return ""
	}
	for _, m := range s.machines {
		switch runtime := render.ConfiguredRuntime(m.report.Delivered); runtime {
		case "":
		case s.release.Runtime:
			return ""
		default:
			other = runtime
		}
	}
	return other
}

// reconcileDelete deletes the control plane's Machines, and then the Secrets of the cluster. Cluster API deletes an RKEControlPlane after
// all workers and leaves control plane Machines to it, except those of MachineDeployments.
func (r *Reconciler) reconcileDelete(ctx context.Context, s *scope) error {
	// Without its Cluster it has no Machines to delete: the name of one, which anybody may write, is not enough.
	if s.cluster != nil {
		remaining, err := r.deleteMachines(ctx, s)
		if err != nil {
			return err
		}
		if len(remaining) > 0 {
			s.deleting = "Waiting for control plane Machines to be deleted: " + message.JoinNames(remaining, maxNames)
			return r.holdOperations(ctx, s, rollout.Wait{Reason: rollout.ReasonDeleting, Message: "the RKEControlPlane is being deleted"})
		}
	}
	if err := r.deleteSecrets(ctx, s); err != nil {
		return err
	}
	s.deleting = "All Machines and Secrets of the control plane are deleted"
	controllerutil.RemoveFinalizer(s.controlPlane, Finalizer)
	objects.DropRancherFinalizers(s.controlPlane)
	return nil
}

// deleteMachines returns the names of those that still exist. That there is none is read past the cache, which may be behind; while there
// are some, a list of all Machines of the namespace would be too much for each that is deleted.
func (r *Reconciler) deleteMachines(ctx context.Context, s *scope) (remaining []string, err error) {
	for _, from := range []client.Reader{r.Cache, r.Live} {
		if remaining, err = r.deleteMachinesOf(ctx, s, from); err != nil || len(remaining) > 0 {
			break
		}
	}
	return remaining, err
}

func (r *Reconciler) deleteMachinesOf(ctx context.Context, s *scope, from client.Reader) (remaining []string, _ error) {
	var list clusterv1.MachineList
	err := from.List(ctx, &list, client.InNamespace(s.controlPlane.Namespace),
		client.MatchingLabels{clusterv1.ClusterNameLabel: s.clusterName()})
	if err != nil {
		return nil, fmt.Errorf("listing the cluster's Machines: %w", err)
	}
	for i := range list.Items {
		m := &list.Items[i]
		if _, is := m.Labels[clusterv1.MachineControlPlaneLabel]; !is && m.Labels[rkev1.ControlPlaneRoleLabel] != "true" {
			continue
		}
		remaining = append(remaining, m.Name)
		if !m.DeletionTimestamp.IsZero() || inMachineSet(m) {
			continue
		}
		if err := r.Client.Delete(ctx, m, client.Preconditions{UID: &m.UID}); client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("deleting Machine %s: %w", m.Name, err)
		}
	}
	slices.Sort(remaining)
	return remaining, nil
}
