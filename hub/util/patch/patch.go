package patch

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
	// before is the object as stored, with its resource version.
	before Object
}

// NewHelper is called before an object is changed. owned are the types of the conditions that this controller writes; others are not
// written.
func NewHelper(c client.Client, object Object, owner client.FieldOwner, owned ...string) *Helper {
	return &Helper{client: c, owner: owner, owned: owned, before: object.DeepCopyObject().(Object)}
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
	stored, err := send(object, h.before, c.metadata, c.rest, func(o client.Object, p client.Patch) error {
		return h.client.Patch(ctx, o, p, h.owner)
	})
	if err != nil {
		return err
	}
	object.SetResourceVersion(stored.GetResourceVersion())
	object.SetGeneration(stored.GetGeneration())
	h.before = stored
	return nil
}

// patchStatus writes the changes of the status to the newest known object.
func (h *Helper) patchStatus(ctx context.Context, object Object) error {
	c, err := diff(h.before, object)
	if err != nil {
		return err
	}
	latest := h.before
	for attempt := 1; ; attempt++ {
		status := maps.Clone(c.status)
		if merged, differ := mergeConditions(latest.GetConditions(), h.before.GetConditions(), object.GetConditions(), h.owned); differ {
			status["conditions"] = merged
		}
		if len(status) == 0 {
			return nil
		}
		stored, err := send(object, latest, nil, map[string]any{"status": status}, func(o client.Object, p client.Patch) error {
			return h.client.Status().Patch(ctx, o, p, h.owner)
		})
		if err == nil {
			object.SetResourceVersion(stored.GetResourceVersion())
			object.SetConditions(stored.GetConditions())
			h.before = stored
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

// send writes a merge patch with the resource version of base, and returns the stored object.
func send(object, base Object, metadata, rest map[string]any, write func(client.Object, client.Patch) error) (Object, error) {
	body := map[string]any{"metadata": map[string]any{"resourceVersion": base.GetResourceVersion()}}
	maps.Copy(body["metadata"].(map[string]any), metadata)
	maps.Copy(body, rest)
	raw, err := json.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("encoding the patch: %w", err)
	}
	stored := empty(object)
	return stored, write(stored, client.RawPatch(types.MergePatchType, raw))
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
