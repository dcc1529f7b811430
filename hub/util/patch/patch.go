package patch

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sigs.k8s.io/cluster-api/util/conditions"
)

// Object is an object with conditions in status.conditions.
type Object interface {
	client.Object
	conditions.Setter
}

// maxAttempts bounds the attempts to write a status that other controllers write at the same time. After that the reconcile fails with a
// conflict.
const maxAttempts = 5

// Helper writes the changes of one reconcile to one object.
type Helper struct {
	client client.Client
	owner  client.FieldOwner
	owned  []string
	// before is the object that the reconcile began with, with what was written of it since, but without what others have written. The
	// changes of the reconcile are those from before.
	before Object
	// stored is the object as last read or written, which may have changes of others. Its resource version is that of the next write.
	stored Object
}

// NewHelper is called before an object is changed. owned are the types of the conditions that this controller writes; others are not
// written.
func NewHelper(c client.Client, object Object, owner client.FieldOwner, owned ...string) *Helper {
	before := object.DeepCopyObject().(Object)
	return &Helper{client: c, owner: owner, owned: owned, before: before, stored: before}
}

// Patch writes what has changed since NewHelper. An object that does not exist any more is no error. The status is written last, since its
// conditions may be about everything else; of an object that is being deleted it is written first, since the object is gone with its last
// finalizer.
func (h *Helper) Patch(ctx context.Context, object Object) error {
	boundMessages(object, h.owned)
	if equality.Semantic.DeepEqual(h.before, object) {
		return nil
	}
	writes := []func(context.Context, Object) error{h.patchObject, h.patchStatus}
	if !object.GetDeletionTimestamp().IsZero() {
		writes = []func(context.Context, Object) error{h.patchStatus, h.patchObject}
	}
	for _, write := range writes {
		err := write(ctx, object)
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("writing %s: %w", name(object), err)
		}
	}
	return nil
}

// PatchObject writes only what has changed outside of the status, for what must be stored before the reconcile continues.
func (h *Helper) PatchObject(ctx context.Context, object Object) error {
	if err := h.patchObject(ctx, object); err != nil {
		return fmt.Errorf("writing %s: %w", name(object), err)
	}
	return nil
}

func (h *Helper) patchObject(ctx context.Context, object Object) error {
	c, err := diff(h.before, object)
	if err != nil || len(c.metadata) == 0 && len(c.rest) == 0 {
		return err
	}
	if what := h.overwritten(c); what != "" {
		return apierrors.NewConflict(schema.GroupResource{Resource: reflect.TypeOf(object).Elem().Name()}, object.GetName(),
			fmt.Errorf("its %s have changed meanwhile", what))
	}
	err = h.send(object, h.stored, c.metadata, c.rest, func(o client.Object, p client.Patch) error {
		return h.client.Patch(ctx, o, p, h.owner)
	})
	if err != nil {
		return err
	}
	object.SetGeneration(h.stored.GetGeneration())
	h.before.SetGeneration(h.stored.GetGeneration())
	return nil
}

// overwritten names what changes would take back of what others wrote before the status was written. Labels and annotations are merged key
// by key; lists and the spec are not.
func (h *Helper) overwritten(c changes) string {
	_, finalizers := c.metadata["finalizers"]
	_, owners := c.metadata["ownerReferences"]
	switch {
	case finalizers && !slices.Equal(h.before.GetFinalizers(), h.stored.GetFinalizers()):
		return "finalizers"
	case owners && !equality.Semantic.DeepEqual(h.before.GetOwnerReferences(), h.stored.GetOwnerReferences()):
		return "owner references"
	case len(c.rest) > 0 && h.before.GetGeneration() != h.stored.GetGeneration():
		return "fields"
	}
	return ""
}

// patchStatus writes the changes of the status to the newest known object.
func (h *Helper) patchStatus(ctx context.Context, object Object) error {
	c, err := diff(h.before, object)
	if err != nil {
		return err
	}
	latest := h.stored
	for attempt := 1; ; attempt++ {
		status := maps.Clone(c.status)
		if merged, differ := mergeConditions(latest.GetConditions(), h.before.GetConditions(), object.GetConditions(), h.owned); differ {
			status["conditions"] = merged
		}
		if len(status) == 0 {
			return nil
		}
		err := h.send(object, latest, nil, map[string]any{"status": status}, func(o client.Object, p client.Patch) error {
			return h.client.Status().Patch(ctx, o, p, h.owner)
		})
		if err == nil {
			object.SetConditions(h.stored.GetConditions())
			return nil
		}
		if !apierrors.IsConflict(err) || attempt == maxAttempts {
			return err
		}
		newer := empty(object)
		if err := h.client.Get(ctx, client.ObjectKeyFromObject(object), newer); err != nil {
			return err
		}
		if newer.GetResourceVersion() == latest.GetResourceVersion() || newer.GetUID() != object.GetUID() {
			return err // the cache has not seen the other write yet
		}
		latest = newer
	}
}

// send writes a merge patch with the resource version of base, and takes it into before and stored.
func (h *Helper) send(object, base Object, metadata, rest map[string]any, write func(client.Object, client.Patch) error) error {
	body := map[string]any{"metadata": map[string]any{"resourceVersion": base.GetResourceVersion()}}
	maps.Copy(body["metadata"].(map[string]any), metadata)
	maps.Copy(body, rest)
	raw, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("encoding the patch: %w", err)
	}
	before, err := merge(h.before, raw)
	if err != nil {
		return err
	}
	stored := empty(object)
	if err := write(stored, client.RawPatch(types.MergePatchType, raw)); err != nil {
		return err
	}
	h.before, h.stored = before, stored
	object.SetResourceVersion(stored.GetResourceVersion())
	return nil
}

// merge returns the object with a merge patch applied.
func merge(object Object, patch []byte) (Object, error) {
	raw, err := json.Marshal(object)
	if err == nil {
		raw, err = jsonpatch.MergePatch(raw, patch)
	}
	merged := empty(object)
	if err == nil {
		err = json.Unmarshal(raw, merged)
	}
	if err != nil {
		return nil, fmt.Errorf("applying the patch: %w", err)
	}
	return merged, nil
}

// empty returns an object of the same kind and name without content.
func empty(object Object) Object {
	out := reflect.New(reflect.TypeOf(object).Elem()).Interface().(Object)
	out.SetNamespace(object.GetNamespace())
	out.SetName(object.GetName())
	return out
}

func name(object Object) string {
	return fmt.Sprintf("%s %s", reflect.TypeOf(object).Elem().Name(), client.ObjectKeyFromObject(object))
}
