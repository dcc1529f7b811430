package embedded

import (
	"bytes"
	"io"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	// writtenBytes is how much of the last writes of a kind is held in each of two generations, in bytes of the encoded objects.
	writtenBytes = 1 << 20

	// writtenFor is how long after the last write of a kind all of that is dropped.
	writtenFor = 10 * time.Second
)

// decodeOnce is the codec with which custom resources of one kind are stored. It decodes once what it has encoded lately, and gives away
// copies: without a watch cache, a written version is decoded by the request that writes it, by each watch, and by the next request that
// changes it, and to decode a custom resource, which fits it to its schema twice, takes far longer than to copy it. What was not encoded
// lately, such as most of a list, is decoded each time and not held.
type decodeOnce struct {
	runtime.Codec

	mu                 sync.Mutex
	current, previous  map[string]*writtenObject // by the encoded object
	currentBytes       int
	dropAfterLastWrite *time.Timer
}

// writtenObject is what an encoded object is decoded to, from the first time on that it is decoded. Nobody may change the object.
type writtenObject struct {
	once   sync.Once
	object *unstructured.Unstructured
	kind   *schema.GroupVersionKind
}

func newDecodeOnce(codec runtime.Codec) *decodeOnce {
	c := &decodeOnce{Codec: codec}
	c.dropAfterLastWrite = time.AfterFunc(writtenFor, c.drop)
	return c
}

func (c *decodeOnce) Encode(object runtime.Object, w io.Writer) error {
	var encoded bytes.Buffer
	if err := c.Codec.Encode(object, io.MultiWriter(w, &encoded)); err != nil {
		return err
	}
	if _, custom := object.(*unstructured.Unstructured); custom {
		c.hold(encoded.String())
	}
	return nil
}

func (c *decodeOnce) hold(encoded string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current == nil || c.currentBytes+len(encoded) > writtenBytes {
		c.current, c.previous, c.currentBytes = map[string]*writtenObject{}, c.current, 0
	}
	c.current[encoded] = &writtenObject{}
	c.currentBytes += len(encoded)
	c.dropAfterLastWrite.Reset(writtenFor)
}

func (c *decodeOnce) drop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.current, c.previous, c.currentBytes = nil, nil, 0
}

func (c *decodeOnce) held(encoded []byte) *writtenObject {
	c.mu.Lock()
	defer c.mu.Unlock()
	if found, ok := c.current[string(encoded)]; ok {
		return found
	}
	return c.previous[string(encoded)]
}

func (c *decodeOnce) Decode(
	data []byte, defaults *schema.GroupVersionKind, into runtime.Object,
) (runtime.Object, *schema.GroupVersionKind, error) {
	target, custom := into.(*unstructured.Unstructured)
	written := c.held(data)
	if written == nil || into != nil && !custom {
		return c.Codec.Decode(data, defaults, into)
	}
	written.once.Do(func() {
		if object, kind, err := c.Codec.Decode(data, defaults, nil); err == nil {
			written.object, _ = object.(*unstructured.Unstructured)
			written.kind = kind
		}
	})
	if written.object == nil {
		return c.Codec.Decode(data, defaults, into)
	}
	if target == nil {
		target = &unstructured.Unstructured{}
	} else if wanted := target.GroupVersionKind(); !wanted.Empty() && wanted != written.object.GroupVersionKind() {
		return c.Codec.Decode(data, defaults, into)
	}
	target.Object = written.object.DeepCopy().Object
	kind := *written.kind
	return target, &kind, nil
}
