package capi

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"

	jsonpatch "github.com/evanphx/json-patch/v5"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// statusClient is the client of a controller of Cluster API for the objects that it reconciles. Cluster API's patch helper writes the
// status of an object in two requests: its conditions, locked by the resource version, and then the rest. Each reconcile of a Machine that
// comes up changes both. Here the rest is written with the conditions, and the second request, which would change nothing then, is not
// sent.
//
// It knows the helper by what that does: it reads the object again, into a copy of what it was before the reconcile, just before it writes
// the conditions. Where it does something else, each request is sent as it is.
type statusClient struct {
	client.Client
	// kind is the type of the objects.
	kind reflect.Type
	// reads has a *statusRead for each of the objects that were read last, by name. An object is reconciled by one goroutine at a time. Where
	// something else reads it meanwhile, or too many are read, each request is sent as it is.
	reads *lru.Cache
}

// statusRead is an object as a reconcile has read it.
type statusRead struct {
	// before is the object as it was read, known when its conditions are about to be written; after is the one that the reconcile changes.
	before, after client.Object
	// others is the request that changed all but the status, before the conditions were written.
	others *othersWrite
	// written is the rest of the status that was written with the conditions.
	written map[string]any
}

// othersWrite is a request that changed the metadata or specification of an object.
type othersWrite struct {
	patch map[string]any
	// from is the resource version that was changed, and to the one that was written.
	from, to string
}

// keptReads is more than the objects of a kind that are reconciled at the same time.
const keptReads = 128

// newStatusClient returns the client of a controller that reconciles objects of a type.
func newStatusClient(c client.Client, reconciled client.Object) *statusClient {
	return &statusClient{c, reflect.TypeOf(reconciled), lru.New(keptReads)}
}

// Get implements client.Reader.
func (c *statusClient) Get(ctx context.Context, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
	if reflect.TypeOf(object) != c.kind {
		return c.Client.Get(ctx, key, object, opts...)
	}
	if object.GetResourceVersion() != "" {
		if read, ok := c.read(object); ok {
			read.before = object.DeepCopyObject().(client.Object)
		}
		return c.Client.Get(ctx, key, object, opts...)
	}
	if err := c.Client.Get(ctx, key, object, opts...); err != nil {
		return err
	}
	c.reads.Add(key, &statusRead{after: object})
	return nil
}

// read returns what a reconcile has read of an object.
func (c *statusClient) read(object client.Object) (*statusRead, bool) {
	known, ok := c.reads.Get(client.ObjectKeyFromObject(object))
	if !ok {
		return nil, false
	}
	read := known.(*statusRead)
	uid := object.GetUID() // the helper leaves it out
	return read, uid == "" || uid == read.after.GetUID()
}

// Patch implements client.Writer.
func (c *statusClient) Patch(ctx context.Context, object client.Object, patch client.Patch, opts ...client.PatchOption) error {
	if reflect.TypeOf(object) != c.kind || patch.Type() != types.MergePatchType {
		return c.Client.Patch(ctx, object, patch, opts...)
	}
	if read, ok := c.read(object); ok && read.others != nil {
		written := read.others.patch
		read.others = nil
		_, body, err := bodyOf(patch, object)
		if err != nil {
			return err
		}
		if reflect.DeepEqual(body, written) {
			return nil
		}
	}
	return c.Client.Patch(ctx, object, patch, opts...)
}

// Status implements client.Client.
func (c *statusClient) Status() client.SubResourceWriter {
	return statusWriter{c.Client.Status(), c}
}

type statusWriter struct {
	client.SubResourceWriter
	client *statusClient
}

// Patch implements client.SubResourceWriter.
func (w statusWriter) Patch(ctx context.Context, object client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
	send := func(p client.Patch) error { return w.SubResourceWriter.Patch(ctx, object, p, opts...) }
	if reflect.TypeOf(object) != w.client.kind || patch.Type() != types.MergePatchType {
		return send(patch)
	}
	read, ok := w.client.read(object)
	if !ok {
		return send(patch)
	}
	data, body, err := bodyOf(patch, object)
	if err != nil {
		return err
	}
	written := read.written
	read.written = nil
	if written != nil && reflect.DeepEqual(body, map[string]any{"status": written}) {
		return nil
	}
	locked, ok, _ := unstructured.NestedString(body, "metadata", "resourceVersion")
	if !ok { // these are not the conditions
		return send(client.RawPatch(patch.Type(), data))
	}
	changed, err := read.changes()
	if err != nil {
		return err
	}
	switch err := read.writeOthers(ctx, w.client.Client, changed.others, locked); {
	case apierrors.IsConflict(err): // the helper starts again
		return err
	case err != nil: // the helper sends the same, and gets the same error
		return send(client.RawPatch(patch.Type(), data))
	}
	if read.others != nil && read.others.from == locked {
		if data, err = lockedAt(body, read.others.to); err != nil {
			return err
		}
	}
	merged := data
	if len(changed.status) > 0 {
		if merged, err = jsonpatch.MergeMergePatches(data, changed.rest); err != nil {
			return fmt.Errorf("merging the patches of the status of %T %s: %w", object, client.ObjectKeyFromObject(object), err)
		}
	}
	err = send(client.RawPatch(patch.Type(), merged))
	if len(changed.status) > 0 && apierrors.IsInvalid(err) { // it may be the rest, such as an address of a provider
		return send(client.RawPatch(patch.Type(), data))
	}
	if err == nil {
		read.written = changed.status
	}
	return err
}

// bodyOf returns a patch as it is sent, and decoded.
func bodyOf(patch client.Patch, object client.Object) (data []byte, body map[string]any, err error) {
	if data, err = patch.Data(object); err == nil {
		err = json.Unmarshal(data, &body)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("reading the patch of %T %s: %w", object, client.ObjectKeyFromObject(object), err)
	}
	return data, body, nil
}

// lockedAt returns a patch that the API server refuses unless the object has this resource version.
func lockedAt(patch map[string]any, version string) ([]byte, error) {
	locked := maps.Clone(patch)
	metadata, _ := patch["metadata"].(map[string]any)
	metadata = maps.Clone(metadata)
	if metadata == nil {
		metadata = map[string]any{}
	}
	metadata["resourceVersion"] = version
	locked["metadata"] = metadata
	return json.Marshal(locked)
}

// statusChanges are what a reconcile has changed of an object, but for conditions.
type statusChanges struct {
	// rest is a merge patch of the status, and status what that sets.
	rest   []byte
	status map[string]any
	// others is a merge patch of all but the status.
	others map[string]any
}

// changes returns what the reconcile has changed: nothing where the object was written meanwhile or is being deleted.
func (r *statusRead) changes() (statusChanges, error) {
	before, after := r.before, r.after
	if before == nil || before.GetResourceVersion() != after.GetResourceVersion() || !after.GetDeletionTimestamp().IsZero() {
		return statusChanges{}, nil
	}
	was, othersBefore, err := statusWithoutConditions(before)
	if err != nil {
		return statusChanges{}, err
	}
	is, others, err := statusWithoutConditions(after)
	if err != nil {
		return statusChanges{}, err
	}
	c := statusChanges{}
	var body struct {
		Status map[string]any `json:"status"`
	}
	if c.rest, err = jsonpatch.CreateMergePatch(was, is); err == nil {
		err = json.Unmarshal(c.rest, &body)
	}
	if c.status = body.Status; err == nil && !reflect.DeepEqual(othersBefore, others) {
		c.others, err = mergePatchOf(othersBefore, others)
	}
	if err != nil {
		return statusChanges{}, fmt.Errorf("comparing %T %s: %w", after, client.ObjectKeyFromObject(after), err)
	}
	return c, nil
}

// mergePatchOf returns the merge patch that makes one object another.
func mergePatchOf(before, after map[string]any) (patch map[string]any, err error) {
	was, err := json.Marshal(before)
	if err != nil {
		return nil, err
	}
	is, err := json.Marshal(after)
	if err != nil {
		return nil, err
	}
	data, err := jsonpatch.CreateMergePatch(was, is)
	if err != nil {
		return nil, err
	}
	return patch, json.Unmarshal(data, &patch)
}

// writeOthers changes all but the status of the object that was read, if it still has the resource version at which its conditions are
// about to be written, and once for all attempts to write these.
func (r *statusRead) writeOthers(ctx context.Context, c client.Client, patch map[string]any, locked string) error {
	if len(patch) == 0 || r.others != nil {
		return nil
	}
	data, err := lockedAt(patch, locked)
	if err != nil {
		return err
	}
	written := r.after.DeepCopyObject().(client.Object)
	if err := c.Patch(ctx, written, client.RawPatch(types.MergePatchType, data)); err != nil {
		return err
	}
	r.others = &othersWrite{patch: patch, from: locked, to: written.GetResourceVersion()}
	return nil
}

// statusWithoutConditions returns an object with nothing but its status, and that without conditions, as JSON, and its other fields.
func statusWithoutConditions(object client.Object) (status []byte, others map[string]any, err error) {
	data, err := json.Marshal(object)
	if err == nil {
		err = json.Unmarshal(data, &others)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("reading the fields of %T %s: %w", object, client.ObjectKeyFromObject(object), err)
	}
	only := map[string]any{"status": others["status"]}
	delete(others, "status")
	unstructured.RemoveNestedField(only, "status", "conditions")
	unstructured.RemoveNestedField(only, "status", "deprecated", "v1beta1", "conditions")
	status, err = json.Marshal(only)
	return status, others, err
}
