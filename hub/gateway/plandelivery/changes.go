package plandelivery

import (
	"context"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/drover-dev/drover/hub/util/fieldowner"
)

// writeChanges writes the changed keys and what follows from them, and only if the Secret is still the one that was compared.
func (h *Handler) writeChanges(ctx context.Context, current *corev1.Secret, changes map[string]*[]byte) (*corev1.Secret, error) {
	now := time.Now()
	settled := maps.Clone(changes)
	annotations := h.settle(current, settled, now)
	written, err := h.writePlan(ctx, current, settled, annotations, now)
	if len(settled) > len(changes) && (apierrors.IsInvalid(err) || apierrors.IsRequestEntityTooLargeError(err)) {
		// With the copy of a large plan the Secret is larger than one may be. The report counts.
		return h.writePlan(ctx, current, changes, map[string]*string{}, now)
	}
	return written, err
}

// writePlan sends all of the Secret as the cache has it, in protobuf: for a patch, which is smaller, the API server would write and read
// all of the Secret as JSON. The resourceVersion and the UID of the copy have the API server refuse it if the Secret is another one by now.
func (h *Handler) writePlan(ctx context.Context, current *corev1.Secret, changes map[string]*[]byte, annotations map[string]*string,
	now time.Time) (*corev1.Secret, error) {
	for key, value := range seenAnnotation(current, now) {
		annotations[key] = &value
	}
	written := current.DeepCopy()
	written.Data, written.Annotations = with(written.Data, changes), with(written.Annotations, annotations)
	if err := h.Client.Update(ctx, written, fieldowner.Gateway); err != nil {
		return nil, err
	}
	return written, nil
}

// with makes changes to values, which may be nil; a key is removed whose change is nil.
func with[V any](values map[string]V, changes map[string]*V) map[string]V {
	if values == nil {
		values = map[string]V{}
	}
	for key, value := range changes {
		if value == nil {
			delete(values, key)
		} else {
			values[key] = *value
		}
	}
	return values
}

// settle adds to the changes of a report what follows from it, and returns the annotations that do, nil for one that is removed.
func (h *Handler) settle(current *corev1.Secret, changes map[string]*[]byte, now time.Time) map[string]*string {
	annotations := map[string]*string{}
	if h.Settle == nil {
		return annotations
	}
	reported := with(maps.Clone(current.Data), changes)
	settled := &corev1.Secret{Data: maps.Clone(reported)}
	settled.Annotations = maps.Clone(current.Annotations)
	h.Settle(settled, now)
	for _, key := range changedKeys(reported, settled.Data, slices.Equal) {
		changes[key] = valueOf(settled.Data, key)
	}
	for _, key := range changedKeys(current.Annotations, settled.Annotations, func(a, b string) bool { return a == b }) {
		annotations[key] = valueOf(settled.Annotations, key)
	}
	return annotations
}

// valueOf returns a value, or nil if there is none.
func valueOf[V any](values map[string]V, key string) *V {
	if value, found := values[key]; found {
		return &value
	}
	return nil
}
