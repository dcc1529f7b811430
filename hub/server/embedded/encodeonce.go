package embedded

import (
	"bytes"
	"errors"
	"io"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// sharedEvents is how many of the last events of a kind are held, encoded, in each of two generations: fewer where they are encoded to more
// than recentBytes.
const sharedEvents = 64

// encodeOnce has the watches of one kind of custom resources share what an event is encoded to, as those of a watch cache do: such a kind
// has two to four watches of all its objects, and to encode an event as JSON is most of what one costs.
type encodeOnce struct{ events *recent[*encodings] }

func newEncodeOnce() *encodeOnce {
	events := newRecent[*encodings]()
	events.most = sharedEvents
	return &encodeOnce{events}
}

// share returns an event for one watch. Events with the same object are encoded once, trimmed or not; those that are no custom resources,
// such as errors, and bookmarks, which each watch gets at its own time, are left as they are.
func (e *encodeOnce) share(event watch.Event, trimmed bool) watch.Event {
	object, custom := event.Object.(*unstructured.Unstructured)
	if e == nil || !custom || event.Type == watch.Bookmark {
		return event
	}
	key := sharedKey(event.Type, object)
	if trimmed {
		key = "trimmed " + key
	}
	event.Object = &sharedObject{object, e.events.heldOr(key, func() *encodings { return &encodings{} }), e.events.grew}
	return event
}

// sharedKey is of all events with the same object. What a version is of one object: the present one, and for watches that it has left, and
// of a deletion, what was before, with the version of the change.
func sharedKey(of watch.EventType, object *unstructured.Unstructured) string {
	key := object.GetResourceVersion() + " " + types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}.String()
	if of == watch.Deleted {
		return "deleted " + key
	}
	return key
}

// sharedObject is the object of an event, as one watch has decoded it, with what it and others encode it to. The API server encodes an
// object of this kind by CacheEncode.
type sharedObject struct {
	*unstructured.Unstructured
	encodings *encodings
	// grew counts the bytes of each encoding.
	grew func(int)
}

var _ runtime.CacheableObject = &sharedObject{}

// GetObject implements runtime.CacheableObject. The object is that of one watch, which encodes it in turn.
func (o *sharedObject) GetObject() runtime.Object { return o.Unstructured }

// CacheEncode implements runtime.CacheableObject: encode returns the same for all objects with these encodings and an identifier.
func (o *sharedObject) CacheEncode(id runtime.Identifier, encode func(runtime.Object, io.Writer) error, w io.Writer) error {
	e := o.encodings.of(id)
	e.once.Do(func() {
		var encoded bytes.Buffer
		e.err = encode(o.Unstructured, &encoded)
		e.data = encoded.Bytes()
		o.grew(len(e.data))
	})
	if e.err != nil {
		return e.err
	}
	_, err := w.Write(e.data)
	return err
}

// encodings are what an object is encoded to, by the identifier of the encoder, which says in which form, and for which type of event.
type encodings struct {
	mu sync.Mutex
	by map[runtime.Identifier]*encoding
}

// encoding is set when once is done. Nobody may change the data.
type encoding struct {
	once sync.Once
	data []byte
	err  error
}

func (e *encodings) of(id runtime.Identifier) *encoding {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.by == nil {
		e.by = map[runtime.Identifier]*encoding{}
	}
	if e.by[id] == nil {
		e.by[id] = &encoding{err: errNotEncoded}
	}
	return e.by[id]
}

// errNotEncoded ends the other watches when the one that encodes an object for them has panicked: their clients watch again.
var errNotEncoded = errors.New("another watch could not encode the object")
