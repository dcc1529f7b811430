package timeline

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	"github.com/drover-dev/drover/hub/util/timelines"
)

// The operations that are remembered after they were deleted are at most maxEnded of a cluster, and of maxEndedClusters clusters. A replica
// that does not lead records none of them.
const (
	maxEnded         = 20
	maxEndedClusters = 1000
)

// stepOf returns the step of an operation that is in progress, for the condition that is about it; empty for anything else.
func stepOf(object conditioned, c metav1.Condition) string {
	op, ok := object.(operationv1.Operation)
	if !ok || c.Type != operationv1.SucceededCondition || op.CommonStatus().Phase != operationv1.PhaseInProgress {
		return ""
	}
	return op.CommonStatus().Step
}

// operationPhases are the present phases of the operations: the reason for which one waits, the step that it is in, and at last the reason
// for which it has ended. The annotation that has the end too is written before the status, and does not count here.
func (s *scope) operationPhases(now time.Time) []timelines.Operation {
	var out []timelines.Operation
	for _, op := range s.operations {
		o := timelines.Operation{Kind: operationv1.Kind(op), Object: op, Phase: operationPhase(op)}
		o.Phase.Message = s.publicMessage(o.Phase.Name, o.Phase.Message)
		if op.CommonStatus().Phase.Ended() {
			at := metav1.NewTime(now.Truncate(time.Second))
			if terminated := op.CommonStatus().TerminatedAt; terminated != nil {
				at = *terminated
			}
			o.Ended = &at
		}
		out = append(out, o)
	}
	return out
}

func operationPhase(op operationv1.Operation) timelines.Phase {
	status := op.CommonStatus()
	p := timelines.Phase{Name: string(operationv1.PhasePending), Outcome: timelines.OutcomeRunning}
	if status.LastUpdated != nil {
		p.Start = *status.LastUpdated
	}
	if c := meta.FindStatusCondition(status.Conditions, operationv1.SucceededCondition); c != nil {
		p.Name, p.Message = c.Reason, c.Message
	}
	switch status.Phase {
	case operationv1.PhaseInProgress:
		p.Name = cmp.Or(status.Step, p.Name)
	case operationv1.PhaseFailed:
		p.Outcome = timelines.OutcomeFailed
	case operationv1.PhaseSucceeded, operationv1.PhaseCanceled:
		p.Name, p.Outcome = string(status.Phase), timelines.OutcomeDone
	}
	return p
}

// rememberEnded passes all events. An operation that has ended may be deleted at once, before its end is recorded.
func (r *Reconciler) rememberEnded() predicate.Predicate {
	return predicate.Funcs{DeleteFunc: func(e event.DeleteEvent) bool {
		if op, ok := e.Object.(operationv1.Operation); ok && op.CommonStatus().Phase.Ended() {
			r.keepEnded(client.ObjectKey{Namespace: op.GetNamespace(), Name: op.CommonSpec().ClusterRef.Name}, op)
		}
		return true
	}}
}

// keepEnded keeps operations for the next reconcile of their cluster.
func (r *Reconciler) keepEnded(cluster client.ObjectKey, ended ...operationv1.Operation) {
	if len(ended) == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended == nil {
		r.ended = map[client.ObjectKey][]operationv1.Operation{}
	}
	kept, known := r.ended[cluster]
	if !known && len(r.ended) >= maxEndedClusters {
		return
	}
	kept = append(kept, ended...)
	r.ended[cluster] = kept[max(0, len(kept)-maxEnded):]
}

// takeEnded returns what was kept.
func (r *Reconciler) takeEnded(cluster client.ObjectKey) []operationv1.Operation {
	r.mu.Lock()
	defer r.mu.Unlock()
	ended := r.ended[cluster]
	delete(r.ended, cluster)
	return ended
}

// addEnded adds operations that were deleted.
func (s *scope) addEnded(ended []operationv1.Operation) {
	for _, op := range ended {
		if !slices.ContainsFunc(s.operations, func(o operationv1.Operation) bool { return o.GetUID() == op.GetUID() }) {
			s.operations = append(s.operations, op)
		}
	}
}
