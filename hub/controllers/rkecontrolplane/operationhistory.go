package rkecontrolplane

import (
	"context"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	"github.com/drover-dev/drover/hub/util/objects"
	"github.com/drover-dev/drover/hub/util/operations"
)

// requestHistory is how many operations of each kind are kept after their end of those that a generation has asked for.
const requestHistory = 5

// deleteOutdated deletes those of the operations that are beyond requestHistory, and returns the others. A cluster with a snapshot each
// night would have more and more.
func (r *Reconciler) deleteOutdated(ctx context.Context, all []operationv1.Operation) ([]operationv1.Operation, error) {
	outdated := outdatedRequests(all)
	for _, op := range outdated {
		if err := objects.Delete(ctx, r.Client, op, client.Preconditions{UID: new(op.GetUID())}); err != nil {
			return nil, err
		}
	}
	return slices.DeleteFunc(all, func(op operationv1.Operation) bool { return slices.Contains(outdated, op) }), nil
}

// outdatedRequests are the operations beyond requestHistory, of some in the order of their creation. Restores are not among them: by those
// the hub knows whose data the cluster has. Nor are those that a user keeps or has given a time.
func outdatedRequests(all []operationv1.Operation) (outdated []operationv1.Operation) {
	for _, request := range operationRequests {
		kept := 0
		for _, op := range slices.Backward(all) {
			spec := op.CommonSpec()
			if op.GetLabels()[request.label] == "" || request.label == restoreLabel || operations.EndedIn(op) == "" || spec.Paused ||
				spec.TTL >= 0 {
				continue
			}
			if kept++; kept > requestHistory {
				outdated = append(outdated, op)
			}
		}
	}
	return outdated
}
