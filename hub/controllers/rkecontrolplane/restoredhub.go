package rkecontrolplane

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/plan/operation"
	"github.com/drover-dev/drover/hub/plan/rollout"
)

// checkRestored finds out whether the hub was restored from a backup of before an upgrade of the cluster. Nothing is delivered to its
// machines then, not even a change that restarts nothing: each plan installs its version, which would be that of the backup. Only the
// cluster's Nodes say what it runs, since Machines and plan Secrets are those of the backup, and agents report no version. It is checked
// once after a restore: from then on the hub knows of each upgrade. With the configuration of a snapshot that was not restored it cannot be
// checked: that may be of an earlier version on purpose.
func (s *scope) checkRestored(restored time.Time) {
	s.outdated = rollout.Wait{}
	if !s.controlPlane.CreationTimestamp.Time.Before(restored) || s.versionChecked(restored) || !s.wasInitialized() {
		return
	}
	desired, unrestored := s.controlPlane.Spec.DesiredVersion(), s.unrestored()
	switch {
	case !s.operationOfBackup(restored) && operation.RestoresData(s.operation):
		// What has run before does not matter any more.
	case unrestored != "":
		name, _, _ := strings.Cut(unrestored, "/")
		s.outdated = rollout.Wait{Reason: rollout.ReasonHubRestored, Message: fmt.Sprintf("The hub was restored from a backup, and the "+
			"Cluster has the configuration of ETCDSnapshot %s, whose data is not restored: waiting for an ETCDSnapshotRestore. If there is "+
			"none, restore it with another generation, or set the configuration back and remove spec.rkeConfig.etcdSnapshotRestore", name)}
		return
	case s.nodes == nil:
		s.outdated = rollout.Wait{Reason: rollout.ReasonWaitingForConnection, Message: fmt.Sprintf("The hub was restored from a backup: "+
			"waiting for a connection to the cluster's API, to check that no Node runs a later minor version than %s", desired)}
		return
	default:
		if newer := newerNode(s.nodes.All(), desired); newer != nil {
			s.outdated = rollout.Wait{Reason: rollout.ReasonHubRestored, Message: fmt.Sprintf("The hub was restored from a backup of before the "+
				"cluster was upgraded: Node %s runs %s. Set spec.kubernetesVersion of the Cluster, which is %s, to the version that its servers "+
				"run", newer.Name, newer.Status.NodeInfo.KubeletVersion, desired)}
			return
		}
	}
	metav1.SetMetaDataAnnotation(&s.controlPlane.ObjectMeta, rkev1.VersionCheckedAnnotation, restored.UTC().Format(time.RFC3339Nano))
}

// wasInitialized reports whether the cluster was started before the backup, which may lack the status: this reconcile sets it at its end
// where a machine serves the API.
func (s *scope) wasInitialized() bool {
	return isInitialized(s.controlPlane) || slices.ContainsFunc(s.controlPlaneMachines(), (*machine).servesAPI)
}

// versionChecked reports whether the version was checked since the hub was restored, by the hub or by a user.
func (s *scope) versionChecked(restored time.Time) bool {
	at, err := time.Parse(time.RFC3339, s.controlPlane.Annotations[rkev1.VersionCheckedAnnotation])
	return err == nil && !at.Before(restored)
}

// operationOfBackup reports whether the operation is in the backup that the hub was restored from.
func (s *scope) operationOfBackup(restored time.Time) bool {
	return s.operation != nil && s.operation.GetCreationTimestamp().Time.Before(restored)
}

// holdsOperation reports whether the operation waits until the version of the cluster is known. A restore of a snapshot does not: it
// replaces what the cluster runs, which may be down. One of the backup does not either, since it ends.
func (s *scope) holdsOperation(restored time.Time) bool {
	_, restores := s.operation.(*operationv1.ETCDSnapshotRestore)
	return s.outdated != (rollout.Wait{}) && !restores && !s.operationOfBackup(restored)
}

// newerNode is the first Node by name that runs a later minor version; nil for none.
func newerNode(nodes []corev1.Node, desired string) (newer *corev1.Node) {
	for i := range nodes {
		n := &nodes[i]
		if earlierMinor(desired, n.Status.NodeInfo.KubeletVersion) && (newer == nil || n.Name < newer.Name) {
			newer = n
		}
	}
	return newer
}
