package rkecontrolplane

import (
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
)

// TestReconnectRestored: when a restored server has started, what the hub watches in its cluster begins again, once.
func TestReconnectRestored(t *testing.T) {
	restore := func(step string) operationv1.Operation {
		op := &operationv1.ETCDSnapshotRestore{}
		op.Status.Step = step
		return op
	}
	rotation := func(step string) operationv1.Operation {
		op := &operationv1.CertificateRotation{}
		op.Status.Step = step
		return op
	}
	const starts = operationv1.StepPostRestorePodCleanup
	for name, tc := range map[string]struct {
		before, after operationv1.Operation
		want          int
	}{
		"is stopped":         {restore(operationv1.StepShutdown), restore(operationv1.StepRestore), 0},
		"starts":             {restore(operationv1.StepRestore), restore(starts), 0},
		"is starting still":  {restore(starts), restore(starts), 0},
		"has started":        {restore(starts), restore(operationv1.StepInitialRestartCluster), 1},
		"was the last step":  {restore(starts), restore(""), 1},
		"another operation":  {rotation(starts), rotation(""), 0},
		"the others started": {restore(operationv1.StepInitialRestartCluster), restore(operationv1.StepRestartCluster), 0},
	} {
		s := scopeWithMachines()
		s.observedOperation, s.operation = tc.before, tc.after
		got := 0
		r := &Reconciler{Reconnect: func(key client.ObjectKey) {
			if key == client.ObjectKeyFromObject(s.cluster) {
				got++
			}
		}}
		if r.reconnectRestored(s); got != tc.want {
			t.Errorf("a server that %s: %d reconnects, want %d", name, got, tc.want)
		}
	}
}
