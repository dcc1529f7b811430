package embedded

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/core"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
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
			encode(t, codec, custom(fmt.Sprint(n), strings.Repeat("x", recentBytes*2/3)))
		}
		valueOf(t, codec, data, nil)
		decoded(1)

		t.Log("nothing is written for a while")
		data = encode(t, codec, custom("a", "last"))
		time.Sleep(recentFor + time.Second)
		synctest.Wait()
		if codec.written.current != nil || codec.written.previous != nil {
			t.Error("still holds what was written")
		}
		if got := valueOf(t, codec, data, nil)["value"]; got != "last" {
			t.Errorf("got %v", got)
		}
		decoded(1)
	})
}

// defaulting is the codec of custom resources whose status has a default.
type defaulting struct{ countingCodec }

func (c *defaulting) Decode(
	data []byte, defaults *schema.GroupVersionKind, into runtime.Object,
) (runtime.Object, *schema.GroupVersionKind, error) {
	object, kind, err := c.countingCodec.Decode(data, defaults, into)
	if custom, ok := object.(*unstructured.Unstructured); ok && custom.Object["status"] == nil {
		custom.Object["status"] = map[string]any{"observedGeneration": int64(-1)}
	}
	return object, kind, err
}

// TestDecodeCopies: after the first one nothing is decoded that is encoded in its own version, and what is encoded may change afterwards;
// but a new object, which has no status, gets its default.
func TestDecodeCopies(t *testing.T) {
	inner := &defaulting{countingCodec{Codec: unstructured.UnstructuredJSONScheme}}
	codec := newDecodeOnce(inner)
	for _, value := range []string{"first", "second", "new"} {
		object := custom("a", value)
		if value != "new" {
			object.Object["status"] = map[string]any{"observedGeneration": int64(1)}
		}
		data := encode(t, codec, object)
		if value == "second" {
			object.Object["spec"].(map[string]any)["value"] = "changed"
		}
		for range 2 {
			got, _, err := codec.Decode(data, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			want := custom("a", value)
			want.Object["status"] = map[string]any{"observedGeneration": int64(1)}
			if value == "new" {
				want.Object["status"] = map[string]any{"observedGeneration": int64(-1)}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			got.(*unstructured.Unstructured).Object["spec"].(map[string]any)["value"] = "changed"
		}
	}
	if got := inner.decoded.Swap(0); got != 2 {
		t.Errorf("decoded %d times, want the first and the new one", got)
	}
}

// converting is a codec that stores version 1 of what is version 2.
type converting struct{ countingCodec }

func (c *converting) Encode(object runtime.Object, w io.Writer) error {
	stored := object.DeepCopyObject().(*unstructured.Unstructured)
	stored.SetAPIVersion("example.com/v1")
	return c.countingCodec.Encode(stored, w)
}

func (c *converting) Decode(
	data []byte, defaults *schema.GroupVersionKind, into runtime.Object,
) (runtime.Object, *schema.GroupVersionKind, error) {
	object, kind, err := c.countingCodec.Decode(data, defaults, into)
	if err == nil {
		object.(*unstructured.Unstructured).SetAPIVersion("example.com/v2")
	}
	return object, kind, err
}

// TestDecodeConverted: what is stored in another version is decoded, as the kind in which it is stored.
func TestDecodeConverted(t *testing.T) {
	inner := &converting{countingCodec{Codec: unstructured.UnstructuredJSONScheme}}
	codec := newDecodeOnce(inner)
	for range 3 {
		object := custom("a", "some")
		object.SetAPIVersion("example.com/v2")
		object.Object["status"] = map[string]any{}
		data := encode(t, codec, object)
		for range 2 {
			got, kind, err := codec.Decode(data, nil, nil)
			if err != nil || kind.Version != "v1" || got.GetObjectKind().GroupVersionKind().Version != "v2" {
				t.Errorf("decoded %v of kind %v (%v)", got, kind, err)
			}
		}
	}
	if got := inner.decoded.Swap(0); got != 3 {
		t.Errorf("decoded %d times, want each once", got)
	}
}

// TestDecodeOnceFails: what cannot be decoded is an error each time.
func TestDecodeOnceFails(t *testing.T) {
	codec := newDecodeOnce(unstructured.UnstructuredJSONScheme)
	codec.written.hold("{", &writtenObject{})
	for range 2 {
		if _, _, err := codec.Decode([]byte("{"), nil, nil); err == nil {
			t.Error("no error")
		}
	}
}

// TestDecodeSecretOnce: a Secret that was written lately is decoded once, into what was given or into a new Secret; another kind is not.
func TestDecodeSecretOnce(t *testing.T) {
	inner := &countingCodec{Codec: legacyscheme.Codecs.LegacyCodec(corev1.SchemeGroupVersion)}
	codec := newDecodeOnce(inner)
	want := &core.Secret{Type: core.SecretTypeOpaque, Data: map[string][]byte{"plan": []byte("{}")}}
	want.Name, want.ResourceVersion = "a", "7"
	data := encode(t, codec, want)
	for _, into := range []runtime.Object{nil, &core.Secret{}, &core.Secret{Data: map[string][]byte{"other": nil}}} {
		decoded, kind, err := codec.Decode(data, nil, into)
		if err != nil || kind.Kind != "Secret" {
			t.Fatal(kind, err)
		}
		got := decoded.(*core.Secret)
		if into != nil && into != decoded {
			t.Error("decoded into another object than was given")
		}
		got.TypeMeta = want.TypeMeta
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
		got.Data["plan"][0] = 'x'
		got.Data["own"] = nil
	}
	if got := inner.decoded.Swap(0); got != 1 {
		t.Errorf("decoded %d times, want once", got)
	}
	if _, _, err := codec.Decode(data, nil, &core.ConfigMap{}); err == nil || inner.decoded.Load() != 1 {
		t.Errorf("a Secret was decoded into a ConfigMap: %v", err)
	}
}

// xor is a transformer that counts what it decrypts.
type xor struct{ decrypted int }

func (x *xor) TransformToStorage(_ context.Context, data []byte, _ value.Context) ([]byte, error) {
	out := bytes.Clone(data)
	for i := range out {
		out[i] ^= 0x55
	}
	return out, nil
}

func (x *xor) TransformFromStorage(ctx context.Context, data []byte, dataCtx value.Context) ([]byte, bool, error) {
	x.decrypted++
	out, err := x.TransformToStorage(ctx, data, dataCtx)
	return out, true, err
}

// TestDecryptOnce: what was encrypted lately is known; all else is decrypted, as what is stored for another key is.
func TestDecryptOnce(t *testing.T) {
	inner := &xor{}
	transformer := newDecryptOnce(inner)
	key := value.DefaultContext("/secrets/a")
	stored, err := transformer.TransformToStorage(t.Context(), []byte("secret"), key)
	if err != nil {
		t.Fatal(err)
	}
	other, _ := inner.TransformToStorage(t.Context(), []byte("before the start"), key)
	for _, tc := range []struct {
		stored    []byte
		key       value.DefaultContext
		want      string
		stale     bool
		decrypted int
	}{
		{stored, key, "secret", false, 0},
		{stored, key, "secret", false, 0},
		{stored, value.DefaultContext("/secrets/b"), "secret", true, 1},
		{other, key, "before the start", true, 1},
	} {
		inner.decrypted = 0
		got, stale, err := transformer.TransformFromStorage(t.Context(), tc.stored, tc.key)
		if err != nil || string(got) != tc.want || stale != tc.stale || inner.decrypted != tc.decrypted {
			t.Errorf("%q of %s: %q, stale %t, decrypted %d times (%v)", tc.stored, tc.key, got, stale, inner.decrypted, err)
		}
	}
}
