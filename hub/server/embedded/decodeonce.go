package embedded

import (
	"bytes"
	"io"
	"reflect"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// decodeOnce is the codec with which objects of one kind are stored, custom resources or Secrets. It decodes at most once what it has
// encoded lately, and gives away copies: without a watch cache, a written version is decoded by the request that writes it, by each watch,
// and by the next request that changes it. To decode a custom resource, which fits it to its schema twice, takes far longer than to copy
// it, so that it is copied when it is encoded, unless that converts it; and Secrets have a dozen watches, most of which are of one type
// only and drop it. What was not encoded lately, such as most of a list, is decoded each time and not held.
type decodeOnce struct {
	runtime.Codec
	written *recent[*writtenObject]
	// unconverted is the kind of custom resources that are encoded and decoded in the version that they have, once one was.
	unconverted atomic.Pointer[schema.GroupVersionKind]
}

// writtenObject is what an encoded object is decoded to, from the first time on that it is known. Nobody may change the object.
type writtenObject struct {
	once   sync.Once
	object runtime.Object
	kind   *schema.GroupVersionKind
	// encoded is the kind of what was encoded, in the version that it had before.
	encoded schema.GroupVersionKind
}

func newDecodeOnce(codec runtime.Codec) *decodeOnce {
	return &decodeOnce{Codec: codec, written: newRecent[*writtenObject]()}
}

func (c *decodeOnce) Encode(object runtime.Object, w io.Writer) error {
	var encoded bytes.Buffer
	if err := c.Codec.Encode(object, io.MultiWriter(w, &encoded)); err != nil {
		return err
	}
	written := &writtenObject{encoded: object.GetObjectKind().GroupVersionKind()}
	if kind := c.unconverted.Load(); kind != nil && *kind == written.encoded && isComplete(object) {
		written.once.Do(func() { written.object, written.kind = object.DeepCopyObject(), kind })
	}
	c.written.hold(encoded.String(), written)
	return nil
}

// isComplete reports whether a custom resource is what it is decoded to. A request has been fitted to the schema and has its defaults when
// it is stored, but the status of a new object is taken away after that, and has its default again when it is decoded.
func isComplete(object runtime.Object) bool {
	custom, ok := object.(*unstructured.Unstructured)
	return ok && custom.Object["status"] != nil
}

func (c *decodeOnce) Decode(
	data []byte, defaults *schema.GroupVersionKind, into runtime.Object,
) (runtime.Object, *schema.GroupVersionKind, error) {
	written, held := c.written.held(data)
	if !held {
		return c.Codec.Decode(data, defaults, into)
	}
	written.once.Do(func() {
		if object, kind, err := c.Codec.Decode(data, defaults, nil); err == nil {
			written.object, written.kind = object, kind
			if _, custom := object.(*unstructured.Unstructured); custom && *kind == written.encoded &&
				object.GetObjectKind().GroupVersionKind() == written.encoded {
				c.unconverted.Store(kind)
			}
		}
	})
	if written.object == nil || into != nil && !sameKind(into, written.object) {
		return c.Codec.Decode(data, defaults, into)
	}
	kind := *written.kind
	object := written.object.DeepCopyObject()
	if into == nil {
		return object, &kind, nil
	}
	reflect.ValueOf(into).Elem().Set(reflect.ValueOf(object).Elem())
	return into, &kind, nil
}

// sameKind reports whether an object that is to be decoded into is of the kind of another, or a custom resource of no kind.
func sameKind(into, object runtime.Object) bool {
	if reflect.TypeOf(into) != reflect.TypeOf(object) {
		return false
	}
	custom, ok := into.(*unstructured.Unstructured)
	if !ok {
		return true
	}
	wanted := custom.GroupVersionKind()
	return wanted.Empty() || wanted == object.GetObjectKind().GroupVersionKind()
}
