package rkecontrolplane

import (
	"context"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// preflightRetry is when a MachineDeployment is annotated again that could not be.
const preflightRetry = 10 * time.Second

// skipPreflightChecks has MachineSets create and replace Machines whatever the version of the control plane. Where the RKEControlPlane has
// spec.version, Cluster API's preflight check ControlPlaneIsStable lets a MachineSet do neither before a control plane node has reported
// its version, nor while one reports an earlier one. But control plane nodes are Machines of MachineSets themselves, a new cluster starts
// with a machine of each role, and a server that has failed during an upgrade is to be replaced. Which machines join meanwhile is decided
// by hub/plan/rollout. MachineDeployments pass the annotation on to their MachineSets.
func (r *Reconciler) skipPreflightChecks(ctx context.Context, s *scope) error {
	if s.controlPlane.Spec.Version == "" {
		return nil // the checks are about spec.version
	}
	for i := range s.deployments {
		d := &s.deployments[i]
		skipped, skips := withStableCheck(d.Annotations[clusterv1.MachineSetSkipPreflightChecksAnnotation])
		if skips || !d.DeletionTimestamp.IsZero() || d.Spec.ClusterName != s.cluster.Name {
			continue
		}
		changed := d.DeepCopy()
		metav1.SetMetaDataAnnotation(&changed.ObjectMeta, clusterv1.MachineSetSkipPreflightChecksAnnotation, skipped)
		if err := r.Client.Patch(ctx, changed, client.MergeFrom(d), fieldOwner); client.IgnoreNotFound(err) != nil {
			// What exists of the cluster must not wait for it.
			ctrl.LoggerFrom(ctx).Error(err, "Failed to annotate MachineDeployment, it may create no Machines; continuing",
				"MachineDeployment", client.ObjectKeyFromObject(d))
			s.requeue(preflightRetry)
		}
	}
	return nil
}

// withStableCheck adds the check to the list of those that are skipped, and reports whether it was skipped already.
func withStableCheck(list string) (skipped string, already bool) {
	checks := rkev1.SplitList(list)
	for _, check := range []clusterv1.MachineSetPreflightCheck{
		clusterv1.MachineSetPreflightCheckAll, clusterv1.MachineSetPreflightCheckControlPlaneIsStable,
	} {
		if slices.Contains(checks, string(check)) {
			return list, true
		}
	}
	return strings.Join(append(checks, string(clusterv1.MachineSetPreflightCheckControlPlaneIsStable)), ","), false
}
