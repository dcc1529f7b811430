package operation

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sigs.k8s.io/cluster-api/util/conditions"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
)

func TestDecideUnmanaged(t *testing.T) {
	seen := metav1.NewTime(begin)
	for name, c := range map[string]struct {
		cluster ClusterState
		after   time.Duration
		seen    *metav1.Time
		since   time.Time
		change  func(*operationv1.ETCDSnapshotSave)
		phase   operationv1.Phase
		reason  string
		again   time.Duration
	}{
		"the cluster is not there": {phase: operationv1.PhasePending, reason: ReasonWaitingForCluster, again: startTimeout},
		"the cluster is created": {cluster: ClusterCreating, phase: operationv1.PhasePending, reason: ReasonWaitingForCluster,
			again: startTimeout},
		"the time is short": {after: startTimeout - time.Second, seen: &seen, phase: operationv1.PhasePending,
			reason: ReasonWaitingForCluster, again: time.Second},
		"the cluster does not come": {after: startTimeout, seen: &seen, phase: operationv1.PhaseFailed, reason: ReasonTimedOut},
		"the cluster stays creating": {cluster: ClusterCreating, after: startTimeout, seen: &seen, phase: operationv1.PhaseFailed,
			reason: ReasonTimedOut},
		"created while no hub ran": {cluster: ClusterCreating, after: startTimeout, since: begin.Add(startTimeout),
			phase: operationv1.PhasePending, reason: ReasonWaitingForCluster, again: startTimeout},
		"the hub did not run": {cluster: ClusterCreating, after: startTimeout, seen: &seen, since: begin.Add(startTimeout - time.Second),
			phase: operationv1.PhasePending, reason: ReasonWaitingForCluster, again: startTimeout - time.Second},
		"imported":            {cluster: ClusterImported, phase: operationv1.PhaseFailed, reason: ReasonClusterImported},
		"of another provider": {cluster: ClusterOfOtherProvider, phase: operationv1.PhaseFailed, reason: ReasonControlPlaneNotSupported},
		"a pause has no limit": {
			after: 2 * startTimeout, seen: &seen, change: func(op *operationv1.ETCDSnapshotSave) { op.Spec.Paused = true },
			phase: operationv1.PhasePending, reason: ReasonWaitingForCluster,
		},
		"canceled": {
			change: func(op *operationv1.ETCDSnapshotSave) { op.Spec.Cancel = true },
			phase:  operationv1.PhaseCanceled, reason: "Canceled",
		},
		"the cluster was deleted": {
			change: func(op *operationv1.ETCDSnapshotSave) { op.Status.Phase = operationv1.PhaseInProgress },
			phase:  operationv1.PhaseFailed, reason: ReasonClusterDeleted,
		},
	} {
		t.Run(name, func(t *testing.T) {
			op := save()
			op.Generation = 3
			if c.change != nil {
				c.change(op)
			}
			op.Status.LastUpdated = c.seen
			again := DecideUnmanaged(op, c.cluster, begin.Add(c.after), c.since)
			succeeded := conditions.Get(op, operationv1.SucceededCondition)
			if op.Status.Phase != c.phase || succeeded == nil || succeeded.Reason != c.reason || succeeded.Message == "" || again != c.again {
				t.Fatalf("phase %s, again after %s, %+v", op.Status.Phase, again, succeeded)
			}
			if c.phase.Ended() != (op.Status.TerminatedAt != nil) || op.Status.LastUpdated == nil || op.Status.ObservedGeneration != 3 {
				t.Errorf("got %+v", op.Status)
			}
			if got := conditions.Get(op, operationv1.PausedCondition).Status == metav1.ConditionTrue; got != op.Spec.Paused {
				t.Errorf("the condition Paused: %v", got)
			}
		})
	}
}
