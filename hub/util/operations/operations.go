package operations

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	"github.com/drover-dev/drover/hub/util/objects"
)

// maxTTL is the largest spec.ttl that is a duration, 292 years. One beyond it is none that ends.
const maxTTL = int64(math.MaxInt64 / time.Second)

// clusterIndex is the index of operations by the name of their Cluster, and a selectable field of their definitions.
const clusterIndex = "spec.clusterRef.name"

// SetupIndexes adds the index that Indexed reads to a cache. It must run before the cache starts.
func SetupIndexes(ctx context.Context, indexer client.FieldIndexer) error {
	for _, kind := range operationv1.Kinds() {
		err := indexer.IndexField(ctx, kind, clusterIndex, func(object client.Object) []string {
			return []string{object.(operationv1.Operation).CommonSpec().ClusterRef.Name}
		})
		if err != nil {
			return fmt.Errorf("indexing %s by %s: %w", operationv1.Kind(kind), clusterIndex, err)
		}
	}
	return nil
}

// Indexed is the option for Of, with the same cluster, by which a cache with the index of SetupIndexes finds operations: the others of the
// namespace cost nothing then. An API server returns nothing else either, but refuses the list as a bad request if it is older than
// Kubernetes 1.31, or has the definitions of an earlier hub.
func Indexed(cluster client.ObjectKey) client.ListOption {
	return client.MatchingFields{clusterIndex: cluster.Name}
}

// Of returns the operations of all kinds that are for a cluster and not being deleted, in the order of their creation. opts are for the
// lists of each kind.
func Of(ctx context.Context, from client.Reader, cluster client.ObjectKey, opts ...client.ListOption) ([]operationv1.Operation, error) {
	var found []operationv1.Operation
	for _, list := range operationv1.Lists() {
		if err := from.List(ctx, list, append(opts, client.InNamespace(cluster.Namespace))...); err != nil {
			return nil, fmt.Errorf("listing operations: %w", err)
		}
		for _, op := range Items(list) {
			if op.CommonSpec().ClusterRef.Name == cluster.Name && op.GetDeletionTimestamp().IsZero() {
				found = append(found, op)
			}
		}
	}
	slices.SortFunc(found, func(a, b operationv1.Operation) int {
		return cmp.Or(a.GetCreationTimestamp().Compare(b.GetCreationTimestamp().Time), cmp.Compare(operationv1.Kind(a), operationv1.Kind(b)),
			cmp.Compare(a.GetName(), b.GetName()))
	})
	return found, nil
}

// Items returns the operations of a list.
func Items(list client.ObjectList) (items []operationv1.Operation) {
	_ = meta.EachListItem(list, func(item runtime.Object) error {
		if op, ok := item.(operationv1.Operation); ok {
			items = append(items, op)
		}
		return nil
	})
	return items
}

// Copy returns a deep copy of an operation.
func Copy(op operationv1.Operation) operationv1.Operation {
	return op.DeepCopyObject().(operationv1.Operation)
}

// EndedIn returns the phase in which an operation has ended; empty for one that has not. The status may have been lost, or be older than
// the annotation, which is written first.
func EndedIn(op operationv1.Operation) operationv1.Phase {
	for _, phase := range []operationv1.Phase{op.CommonStatus().Phase, operationv1.Phase(op.GetAnnotations()[operationv1.EndedAnnotation])} {
		if phase.Ended() {
			return phase
		}
	}
	return ""
}

// Writer writes operations.
type Writer struct {
	Client     client.Client
	FieldOwner client.FieldOwner
	// Metrics counts operations that end; nil for none.
	Metrics *Metrics
}

// Write writes what was decided of an operation: its status as a whole, since a kind may have more than all have, and the owners, unless
// they are nil. observed is the operation as it was read; somebody else's change since then is a conflict. The phase of one that has ended
// is written as an annotation too, after the status, which says why: a hub that stops in between has it written by Expire.
func (w Writer) Write(ctx context.Context, observed, decided operationv1.Operation, owners []metav1.OwnerReference) error {
	metadata, before := Copy(observed), observed.CommonStatus()
	if err := w.writeMetadata(ctx, metadata, "", owners); err != nil {
		return err
	}
	base, op := Copy(observed), Copy(decided)
	for _, o := range []operationv1.Operation{base, op} {
		o.SetResourceVersion(metadata.GetResourceVersion())
		o.SetOwnerReferences(metadata.GetOwnerReferences())
	}
	if !equality.Semantic.DeepEqual(base, op) {
		patch := client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{})
		if err := w.Client.Status().Patch(ctx, op, patch, w.FieldOwner); err != nil {
			return fmt.Errorf("writing the status of %s %s: %w", operationv1.Kind(op), op.GetName(), err)
		}
		w.report(ctx, op, *before)
	}
	return w.writeMetadata(ctx, op, op.CommonStatus().Phase, nil)
}

// report logs and counts what was written.
func (w Writer) report(ctx context.Context, op operationv1.Operation, before operationv1.Status) {
	status := op.CommonStatus()
	if status.Phase != before.Phase || status.Step != before.Step {
		text := ""
		if c := meta.FindStatusCondition(status.Conditions, operationv1.SucceededCondition); c != nil {
			text = c.Message
		}
		ctrl.LoggerFrom(ctx).Info("An operation goes on", operationv1.Kind(op), client.ObjectKeyFromObject(op), "phase", status.Phase,
			"step", status.Step, "message", text)
	}
	if status.Phase.Ended() && !before.Phase.Ended() && status.TerminatedAt != nil {
		w.Metrics.ended(op, status.Phase, status.TerminatedAt.Sub(op.GetCreationTimestamp().Time))
	}
}

// writeMetadata writes the owners, unless they are nil, and the phase, if the operation has ended in it.
func (w Writer) writeMetadata(
	ctx context.Context, op operationv1.Operation, phase operationv1.Phase, owners []metav1.OwnerReference,
) error {
	base := Copy(op)
	if phase.Ended() {
		annotations := maps.Clone(op.GetAnnotations())
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[operationv1.EndedAnnotation] = string(phase)
		op.SetAnnotations(annotations)
	}
	if owners != nil {
		op.SetOwnerReferences(owners)
	}
	if maps.Equal(op.GetAnnotations(), base.GetAnnotations()) &&
		equality.Semantic.DeepEqual(op.GetOwnerReferences(), base.GetOwnerReferences()) {
		return nil
	}
	patch := client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{})
	if err := w.Client.Patch(ctx, op, patch, w.FieldOwner); err != nil {
		return fmt.Errorf("writing %s %s: %w", operationv1.Kind(op), op.GetName(), err)
	}
	return nil
}

// Recover completes the status of an operation that has ended in a phase, where it was lost. It reports whether it has changed it.
func Recover(op operationv1.Operation, phase operationv1.Phase, now time.Time) bool {
	status := op.CommonStatus()
	if status.Phase == phase && status.TerminatedAt != nil {
		return false
	}
	at := metav1.NewTime(now)
	status.Phase, status.Step, status.LastUpdated, status.TerminatedAt = phase, "", &at, &at
	c := metav1.Condition{Type: operationv1.SucceededCondition, Status: metav1.ConditionFalse, Reason: string(phase), LastTransitionTime: at,
		Message: "The operation has ended; the status that said more was lost"}
	if phase == operationv1.PhaseSucceeded {
		c.Status = metav1.ConditionTrue
	}
	meta.SetStatusCondition(&status.Conditions, c)
	return true
}

// Expire deletes an operation that has ended in a phase, after the seconds in its spec.ttl. It returns how long that will be; 0 for one
// that was deleted, or is kept. A status that was lost is written again.
func (w Writer) Expire(ctx context.Context, op operationv1.Operation, phase operationv1.Phase, now time.Time) (time.Duration, error) {
	spec, status := op.CommonSpec(), op.CommonStatus()
	if base := Copy(op); Recover(op, phase, now) {
		if err := w.Client.Status().Patch(ctx, op, client.MergeFrom(base), w.FieldOwner); err != nil {
			return 0, fmt.Errorf("writing the status of %s %s: %w", operationv1.Kind(op), op.GetName(), err)
		}
	}
	if err := w.writeMetadata(ctx, op, phase, nil); err != nil {
		return 0, err
	}
	if spec.TTL < 0 || spec.TTL > maxTTL || spec.Paused {
		return 0, nil
	}
	if left := time.Duration(spec.TTL)*time.Second - now.Sub(status.TerminatedAt.Time); left > 0 {
		return left, nil
	}
	return 0, objects.Delete(ctx, w.Client, op, client.Preconditions{UID: new(op.GetUID())})
}
