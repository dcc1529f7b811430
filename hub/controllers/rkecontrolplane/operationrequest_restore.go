package rkecontrolplane

import (
	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// restoreLabel is the generation of the Cluster's etcdSnapshotRestore for which an ETCDSnapshotRestore was created.
const restoreLabel = "rke.cattle.io/etcd-snapshot-restore"

// restoreRequest is spec.rkeConfig.etcdSnapshotRestore of a Cluster.
var restoreRequest = operationRequest{
	name: "restore", label: restoreLabel,
	wanted: func(spec rkev1.RKEControlPlaneSpec) int64 {
		if spec.ETCDSnapshotRestore == nil || spec.ETCDSnapshotRestore.Name == "" {
			return 0
		}
		return int64(spec.ETCDSnapshotRestore.Generation)
	},
	observed: func(status rkev1.RKEControlPlaneStatus) (int64, bool) {
		if status.ETCDSnapshotRestore == nil {
			return 0, false
		}
		return int64(status.ETCDSnapshotRestore.Generation), true
	},
	create: func(spec rkev1.RKEControlPlaneSpec) operationv1.Operation {
		op := &operationv1.ETCDSnapshotRestore{}
		op.Spec.Args.Name = spec.ETCDSnapshotRestore.Name
		return op
	},
	report: func(status *rkev1.RKEControlPlaneStatus, spec rkev1.RKEControlPlaneSpec, op operationv1.Status) {
		status.ETCDSnapshotRestore, status.ETCDSnapshotRestorePhase = spec.ETCDSnapshotRestore.DeepCopy(), restorePhase(op)
	},
}

// restorePhase is the value of status.etcdSnapshotRestorePhase, as Rancher has it: the step, with another name for the first.
func restorePhase(op operationv1.Status) string {
	switch {
	case op.Phase == operationv1.PhaseInProgress && op.Step != operationv1.StepPreflight:
		return op.Step
	case op.Phase == operationv1.PhaseInProgress:
		return "Started"
	case op.Phase == operationv1.PhaseSucceeded:
		return "Finished"
	case op.Phase.Ended():
		return "Failed"
	}
	return ""
}
