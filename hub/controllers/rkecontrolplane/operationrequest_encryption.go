package rkecontrolplane

import (
	"cmp"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// The values of status.rotateEncryptionKeysPhase, as Rancher has them, for the phases and steps that have another name there. Steps that
// are not listed have the same.
var (
	encryptionPhases = map[operationv1.Phase]string{
		operationv1.PhaseSucceeded: "Done", operationv1.PhaseFailed: "Failed", operationv1.PhaseCanceled: "Failed",
	}
	encryptionStepPhases = map[string]string{
		operationv1.StepRestart: "PostRotateRestart", operationv1.StepRotatePrepared: "Rotate",
		operationv1.StepVerify: "PostReencryptRestart",
	}
)

// encryptionKeyRequest is spec.rkeConfig.rotateEncryptionKeys of a Cluster.
var encryptionKeyRequest = operationRequest{
	name: "rotate-encryption-keys", label: "rke.cattle.io/rotate-encryption-keys",
	wanted: func(spec rkev1.RKEControlPlaneSpec) int64 {
		if spec.RotateEncryptionKeys == nil {
			return 0
		}
		return spec.RotateEncryptionKeys.Generation
	},
	observed: func(status rkev1.RKEControlPlaneStatus) (int64, bool) {
		if status.RotateEncryptionKeys == nil {
			return 0, false
		}
		return status.RotateEncryptionKeys.Generation, true
	},
	create: func(rkev1.RKEControlPlaneSpec) operationv1.Operation { return &operationv1.EncryptionKeyRotation{} },
	report: func(status *rkev1.RKEControlPlaneStatus, spec rkev1.RKEControlPlaneSpec, op operationv1.Status) {
		status.RotateEncryptionKeys, status.RotateEncryptionKeysLeader = spec.RotateEncryptionKeys.DeepCopy(), op.Leader
		status.RotateEncryptionKeysPhase = encryptionPhases[op.Phase]
		if op.Phase == operationv1.PhaseInProgress {
			status.RotateEncryptionKeysPhase = cmp.Or(encryptionStepPhases[op.Step], op.Step)
		}
	},
}
