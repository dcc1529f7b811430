package rkecontrolplane

import (
	"testing"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// TestRestoredName: another name with the same generation restores nothing, and the status does not say that it was restored.
func TestRestoredName(t *testing.T) {
	c := newUnrestoredCluster(t)
	op := &operationv1.ETCDSnapshotRestore{}
	op.Spec.Args.Name, op.Status.Phase = "snap", operationv1.PhaseSucceeded
	c.create("c-restore-2", op, map[string]string{restoreLabel: "2"})
	c.observed(2)
	c.ask(&rkev1.ETCDSnapshotRestore{Name: "other", Generation: 2, RestoreRKEConfig: "none"})
	c.reconcile()
	if got := c.plane().Status; got.ETCDSnapshotRestore.Name != "snap" || got.ETCDSnapshotRestorePhase != "Finished" {
		t.Errorf("got %+v, %s", got.ETCDSnapshotRestore, got.ETCDSnapshotRestorePhase)
	}
}
