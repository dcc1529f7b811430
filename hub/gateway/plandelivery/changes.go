package plandelivery

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// writeChanges writes only the changed keys and what follows from them, and only if the Secret is still the one that was compared.
func (h *Handler) writeChanges(ctx context.Context, current *corev1.Secret, changes map[string]*[]byte) (*corev1.Secret, error) {
	now := time.Now()
	settled := maps.Clone(changes)
	annotations := h.settle(current, settled, now)
	written, err := h.patchPlan(ctx, current, settled, annotations, now)
	if len(settled) > len(changes) && (apierrors.IsInvalid(err) || apierrors.IsRequestEntityTooLargeError(err)) {
		// With the copy of a large plan the Secret is larger than one may be. The report counts.
		return h.patchPlan(ctx, current, changes, map[string]*string{}, now)
	}
	return written, err
}

func (h *Handler) patchPlan(ctx context.Context, current *corev1.Secret, changes map[string]*[]byte, annotations map[string]*string,
	now time.Time) (*corev1.Secret, error) {
	metadata := map[string]any{"uid": current.UID, "resourceVersion": current.ResourceVersion}
	for key, value := range seenAnnotation(current, now) {
		annotations[key] = &value
	}
	if len(annotations) > 0 {
		metadata["annotations"] = annotations
	}
	patch, err := json.Marshal(map[string]any{"metadata": metadata, "data": changes})
	if err != nil {
		return nil, fmt.Errorf("encoding the changes of a plan Secret: %w", err)
	}
	written := &corev1.Secret{}
	written.Namespace, written.Name = current.Namespace, current.Name
	if err := h.Client.Patch(ctx, written, client.RawPatch(types.MergePatchType, patch), fieldOwner); err != nil {
		return nil, err
	}
	return written, nil
}

// settle adds to the changes of a report what follows from it, and returns the annotations that do, nil for one that is removed.
func (h *Handler) settle(current *corev1.Secret, changes map[string]*[]byte, now time.Time) map[string]*string {
	annotations := map[string]*string{}
	if h.Settle == nil {
		return annotations
	}
	reported := maps.Clone(current.Data)
	if reported == nil {
		reported = map[string][]byte{}
	}
	for key, value := range changes {
		if delete(reported, key); value != nil {
			reported[key] = *value
		}
	}
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
