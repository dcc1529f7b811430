package rkecontrolplane

import (
	"encoding/json"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/plan/render"
	"github.com/drover-dev/drover/hub/plan/rollout"
)

// recordChecksums keeps the checksums of the snapshots that a machine has saved in its plan Secret, since the report ends with the next
// plan, and the cluster may list the files before or after. The controller etcdsnapshot writes them into the ETCDSnapshots.
func (m *machine) recordChecksums(wanted *corev1.Secret) error {
	saved := m.savedSnapshots()
	if len(saved) == 0 {
		return nil
	}
	// What cannot be read is written again.
	recorded, _ := rkev1.ReadSnapshotChecksums(wanted.Annotations)
	merged := recorded.With(saved)
	if maps.Equal(recorded.Map(), merged.Map()) {
		return nil
	}
	raw, err := json.Marshal(merged)
	if err != nil {
		return fmt.Errorf("encoding checksums of snapshots: %w", err)
	}
	setOrDelete(&wanted.Annotations, rkev1.SnapshotChecksumsAnnotation, string(raw))
	return nil
}

// savedSnapshots are the checksums that the report of the last plan has.
func (m *machine) savedSnapshots() map[string]string {
	if !m.state.Etcd || m.report.Progress != rollout.ProgressApplied {
		return nil
	}
	return render.SavedSnapshots(m.report.Status.AppliedOutput)
}
