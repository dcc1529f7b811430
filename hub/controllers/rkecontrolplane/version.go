package rkecontrolplane

import (
	"context"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	"github.com/drover-dev/drover/hub/plan/render"
	"github.com/drover-dev/drover/hub/util/apierrors"
	"github.com/drover-dev/drover/hub/util/objects"
	"github.com/drover-dev/drover/hub/util/ownership"
	"github.com/drover-dev/drover/hub/util/patch"
)

// setVersion writes the desired version into a Machine of a MachineSet. Cluster API compares it with the kubelet's; without it, such a
// Machine is never up to date. The MachineSet has none, since a change of it would replace Machines.
func (r *Reconciler) setVersion(ctx context.Context, s *scope, m *machine) error {
	if !needsVersion(m.machine, s.controlPlane.Spec.DesiredVersion()) {
		return nil
	}
	latest, err := patch.Latest(ctx, r.Client, m.machine)
	if err != nil || !needsVersion(latest, s.controlPlane.Spec.DesiredVersion()) {
		return err
	}
	changed := latest.DeepCopy()
	changed.Spec.Version = s.controlPlane.Spec.DesiredVersion()
	if err := r.Client.Patch(ctx, changed, client.MergeFrom(latest), fieldOwner); err != nil && !apierrors.IsGone(err) {
		return fmt.Errorf("writing the version of Machine %s: %w", m.machine.Name, err)
	}
	m.machine = changed
	return nil
}

// SetInitialVersion gives a Machine that a MachineSet creates the version of its cluster, so that it needs no change for that, which would
// make Cluster API write all its conditions again. It changes nothing where it does not know the version: setVersion does later.
func SetInitialVersion(ctx context.Context, from client.Reader, m *clusterv1.Machine) {
	if !inMachineSet(m) || m.Spec.Version != "" {
		return
	}
	cluster := &clusterv1.Cluster{}
	found, err := objects.Get(ctx, from, client.ObjectKey{Namespace: m.Namespace, Name: m.Spec.ClusterName}, cluster)
	if err == nil && found {
		controlPlane, _, readErr := ownership.ControlPlane(ctx, from, cluster)
		if err = readErr; controlPlane != nil && isVersion(controlPlane.Spec.DesiredVersion()) {
			m.Spec.Version = controlPlane.Spec.DesiredVersion()
		}
	}
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Reading the version of a new Machine failed, it is written later", "Machine", m.Namespace+"/"+m.Name)
	}
}

// goesBack warns of a desired version whose minor version is lower than that of a server. A restore brings back the data of its time.
func (s *scope) goesBack() render.Problems {
	desired := s.controlPlane.Spec.DesiredVersion()
	if _, restores := s.operation.(*operationv1.ETCDSnapshotRestore); restores || s.unrestored() != "" {
		return nil
	}
	for _, m := range s.machines {
		if m.state.Server() && !m.state.Deleting && earlierMinor(desired, m.state.Version) {
			return render.Problems{{Field: "spec.kubernetesVersion", Kept: true, Message: fmt.Sprintf("%q has an earlier minor version than %s "+
				"on %s, which Kubernetes does not support: it may not read the data. To go back, restore a snapshot from before the upgrade with "+
				"restoreRKEConfig kubernetesVersion", desired, m.state.Version, m.machine.Name)}}
		}
	}
	return nil
}

// skipsMinor warns of a desired version by which a server skips a minor version.
func (s *scope) skipsMinor() render.Problems {
	desired := s.controlPlane.Spec.DesiredVersion()
	if _, restores := s.operation.(*operationv1.ETCDSnapshotRestore); restores || s.unrestored() != "" {
		return nil
	}
	for _, m := range s.machines {
		if next := nextMinor(m.state.Version); m.state.Server() && !m.state.Deleting && next != "" && earlierMinor(next, desired) {
			return render.Problems{{Field: "spec.kubernetesVersion", Kept: true, Message: fmt.Sprintf("%q skips a minor version after %s on %s, "+
				"which Kubernetes does not support for servers: upgrade to a release of %s first", desired, m.state.Version, m.machine.Name,
				strings.TrimSuffix(next, ".0"))}}
		}
	}
	return nil
}

// nextMinor is the first version of the next minor version; empty where a version cannot be parsed.
func nextMinor(v string) string {
	parsed, err := version.ParseSemantic(v)
	if err != nil {
		return ""
	}
	return fmt.Sprintf("v%d.%d.0", parsed.Major(), parsed.Minor()+1)
}

// earlierMinor reports whether a version has an earlier minor version than another. One that cannot be parsed is not compared.
func earlierMinor(v, than string) bool {
	a, err := version.ParseSemantic(v)
	if err != nil {
		return false
	}
	b, err := version.ParseSemantic(than)
	return err == nil && a.LessThan(b) && (a.Major() != b.Major() || a.Minor() != b.Minor())
}

// isVersion reports whether Cluster API accepts a version.
func isVersion(s string) bool {
	_, err := version.ParseSemantic(s)
	return err == nil && strings.HasPrefix(s, "v")
}

func needsVersion(m *clusterv1.Machine, desired string) bool {
	return inMachineSet(m) && m.DeletionTimestamp.IsZero() && m.Spec.Version != desired
}

func inMachineSet(m *clusterv1.Machine) bool {
	owner := metav1.GetControllerOf(m)
	return owner != nil && owner.Kind == "MachineSet"
}

// inMachineDeployment reports whether a Machine is of a MachineSet of a MachineDeployment, which hands its label on.
func inMachineDeployment(m *clusterv1.Machine) bool {
	return inMachineSet(m) && m.Labels[clusterv1.MachineDeploymentNameLabel] != ""
}
