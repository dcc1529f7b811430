package embedded

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// countingCodec is the codec of custom resources without a schema, and counts what it decodes.
type countingCodec struct {
	runtime.Codec
	decoded atomic.Int32
}

func (c *countingCodec) Decode(
	data []byte, defaults *schema.GroupVersionKind, into runtime.Object,
) (runtime.Object, *schema.GroupVersionKind, error) {
	c.decoded.Add(1)
	return c.Codec.Decode(data, defaults, into)
}

func custom(name, value string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Thing", "metadata": map[string]any{"name": name}, "spec": map[string]any{"value": value},
	}}
}

func encode(t *testing.T, codec runtime.Codec, object runtime.Object) []byte {
	t.Helper()
	data, err := runtime.Encode(codec, object)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func valueOf(t *testing.T, codec runtime.Codec, data []byte, into runtime.Object) map[string]any {
	t.Helper()
	object, kind, err := codec.Decode(data, nil, into)
	if err != nil {
		t.Fatal(err)
	}
	if kind == nil || kind.Kind != "Thing" {
		t.Errorf("decoded a %v", kind)
	}
	if into != nil && object != into {
		t.Error("decoded into another object than was given")
	}
	return object.(*unstructured.Unstructured).Object["spec"].(map[string]any)
}

// TestDecodeOnce: what was written lately is decoded once, and everybody gets a copy of their own; all else is decoded each time.
func TestDecodeOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := &countingCodec{Codec: unstructured.UnstructuredJSONScheme}
		codec := newDecodeOnce(inner)
		decoded := func(want int32) {
			t.Helper()
			if got := inner.decoded.Swap(0); got != want {
				t.Errorf("decoded %d times, want %d", got, want)
			}
		}

		data := encode(t, codec, custom("a", "first"))
		valueOf(t, codec, data, nil)["value"] = "changed"
		filled := custom("other", "other")
		valueOf(t, codec, data, filled)["value"] = "changed"
		if got := valueOf(t, codec, data, &unstructured.Unstructured{})["value"]; got != "first" {
			t.Errorf("a client has changed what others get: %v", got)
		}
		decoded(1)

		unknown := encode(t, inner, custom("b", "before the start"))
		for range 3 {
			valueOf(t, codec, unknown, nil)
		}
		decoded(3)

		t.Log("another version of the kind is asked for")
		other := custom("a", "")
		other.SetAPIVersion("example.com/v2")
		valueOf(t, codec, data, other)
		decoded(1)

		t.Log("more is written than is held")
		for n := range 3 {
			encode(t, codec, custom(fmt.Sprint(n), strings.Repeat("x", writtenBytes*2/3)))
		}
		valueOf(t, codec, data, nil)
		decoded(1)

		t.Log("nothing is written for a while")
		data = encode(t, codec, custom("a", "last"))
		time.Sleep(writtenFor + time.Second)
		synctest.Wait()
		if codec.current != nil || codec.previous != nil {
			t.Error("still holds what was written")
		}
		if got := valueOf(t, codec, data, nil)["value"]; got != "last" {
			t.Errorf("got %v", got)
		}
		decoded(1)
	})
}

// TestDecodeOnceFails: what cannot be decoded is an error each time.
func TestDecodeOnceFails(t *testing.T) {
	codec := newDecodeOnce(unstructured.UnstructuredJSONScheme)
	codec.hold("{")
	for range 2 {
		if _, _, err := codec.Decode([]byte("{"), nil, nil); err == nil {
			t.Error("no error")
		}
	}
}
