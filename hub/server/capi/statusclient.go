package capi

import (
	"context"
	"encoding/json"
	"fmt"
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
	// written is the rest of the status that was written with the conditions.
	written map[string]any
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
	data, err := patch.Data(object)
	if err != nil {
		return err
	}
	body := map[string]any{}
	if err := json.Unmarshal(data, &body); err != nil {
		return fmt.Errorf("reading the patch of the status of %T %s: %w", object, client.ObjectKeyFromObject(object), err)
	}
	written := read.written
	read.written = nil
	if written != nil && reflect.DeepEqual(body, map[string]any{"status": written}) {
		return nil
	}
	if _, locked := body["metadata"]; !locked { // these are not the conditions
		return send(client.RawPatch(patch.Type(), data))
	}
	rest, status, err := read.rest()
	if err != nil {
		return err
	}
	merged := data
	if len(status) > 0 {
		if merged, err = jsonpatch.MergeMergePatches(data, rest); err != nil {
			return fmt.Errorf("merging the patches of the status of %T %s: %w", object, client.ObjectKeyFromObject(object), err)
		}
	}
	err = send(client.RawPatch(patch.Type(), merged))
	if len(status) > 0 && apierrors.IsInvalid(err) { // it may be the rest, such as an address of a provider
		return send(client.RawPatch(patch.Type(), data))
	}
	if err == nil {
		read.written = status
	}
	return err
}

// rest is what the reconcile has changed in the status but for the conditions, as a merge patch and as the status in that. It is empty
// where nothing is, or the object was written meanwhile or is being deleted, or more than its status is changed: the helper writes a
// specification before the status that says what follows from it, such as a provider ID before the addresses.
func (r *statusRead) rest() (patch []byte, status map[string]any, err error) {
	before, after := r.before, r.after
	if before == nil || before.GetResourceVersion() != after.GetResourceVersion() || !after.GetDeletionTimestamp().IsZero() {
		return nil, nil, nil
	}
	was, others, err := statusWithoutConditions(before)
	if err != nil {
		return nil, nil, err
	}
	is, othersNow, err := statusWithoutConditions(after)
	if err != nil || !reflect.DeepEqual(others, othersNow) {
		return nil, nil, err
	}
	if patch, err = jsonpatch.CreateMergePatch(was, is); err != nil {
		return nil, nil, fmt.Errorf("comparing the status of %T %s: %w", after, client.ObjectKeyFromObject(after), err)
	}
	var body struct {
		Status map[string]any `json:"status"`
	}
	if err := json.Unmarshal(patch, &body); err != nil {
		return nil, nil, fmt.Errorf("comparing the status of %T %s: %w", after, client.ObjectKeyFromObject(after), err)
	}
	return patch, body.Status, nil
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
