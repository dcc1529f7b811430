package rkecontrolplane

import (
	"testing"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// TestRequestWithoutStatus: what Rancher has done, or an operation that was deleted since, is not done once more after a move, which leaves
// the status behind: a restore would take the cluster back to an old snapshot.
func TestRequestWithoutStatus(t *testing.T) {
	controlPlane := &rkev1.RKEControlPlane{}
	spec, status := &controlPlane.Spec, &controlPlane.Status
	spec.ETCDSnapshotRestore = &rkev1.ETCDSnapshotRestore{Name: "old", Generation: 3}
	spec.ETCDSnapshotCreate, spec.RotateCertificates = &rkev1.ETCDSnapshotCreate{Generation: 4}, &rkev1.RotateCertificates{Generation: 5}
	spec.RotateEncryptionKeys = &rkev1.RotateEncryptionKeys{Generation: 6}
	status.ETCDSnapshotRestore, status.ETCDSnapshotCreate = spec.ETCDSnapshotRestore.DeepCopy(), spec.ETCDSnapshotCreate.DeepCopy()
	status.CertificateRotationGeneration, status.RotateEncryptionKeys = 5, spec.RotateEncryptionKeys.DeepCopy()
	s := &scope{controlPlane: controlPlane}
	for _, moved := range []bool{false, true} {
		if moved {
			*status = rkev1.RKEControlPlaneStatus{}
		}
		for _, request := range operationRequests {
			if op, err := (&Reconciler{}).ensureRequest(t.Context(), s, request, nil); op != nil || err != nil {
				t.Errorf("%s, moved %v: %v (%v)", request.name, moved, op, err)
			}
		}
	}
	spec.ETCDSnapshotRestore.Generation++
	if next, _ := restoreRequest.next(controlPlane, nil); next != requestCreates {
		t.Errorf("another generation: %v", next)
	}
	controlPlane.Annotations = nil
	if next, _ := restoreRequest.next(controlPlane, nil); next != requestCreates {
		t.Errorf("a new cluster: %v", next)
	}
}
