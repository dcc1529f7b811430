package embedded

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/authentication/user"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/storage"
)

// writtenAt is a custom resource with a version.
func writtenAt(name, value, version string) *unstructured.Unstructured {
	object := custom(name, value)
	object.SetResourceVersion(version)
	return object
}

// TestEncodeOnce: two watches of a kind encode an event once for each form and type of event, and what was before a change is not what it
// became.
func TestEncodeOnce(t *testing.T) {
	shared := newEncodeOnce()
	var encoded []string
	for _, step := range []struct {
		of      watch.EventType
		form    string
		object  *unstructured.Unstructured
		encodes bool
		trimmed bool
	}{
		{watch.Modified, "json", writtenAt("a", "new", "5"), true, false},
		{watch.Modified, "json", writtenAt("a", "new", "5"), false, false},
		{watch.Modified, "metadata", writtenAt("a", "new", "5"), true, false},
		{watch.Added, "json", writtenAt("a", "new", "5"), true, false}, // a watch with a selector that it fits by now
		{watch.Deleted, "json", writtenAt("a", "old", "5"), true, false},
		{watch.Deleted, "json", writtenAt("a", "old", "5"), false, false},
		{watch.Modified, "json", writtenAt("b", "new", "5"), true, false},
		{watch.Modified, "json", writtenAt("a", "newer", "6"), true, false},
		{watch.Modified, "json", writtenAt("a", "trimmed", "6"), true, true},
		{watch.Modified, "json", writtenAt("a", "trimmed", "6"), false, true},
	} {
		event := shared.share(watch.Event{Type: step.of, Object: step.object}, step.trimmed)
		before := len(encoded)
		encode := func(object runtime.Object, w io.Writer) error {
			encoded = append(encoded, step.form)
			return unstructured.UnstructuredJSONScheme.Encode(object, w)
		}
		var out, want bytes.Buffer
		id := runtime.Identifier(fmt.Sprint(step.form, step.of))
		if err := event.Object.(runtime.CacheableObject).CacheEncode(id, encode, &out); err != nil {
			t.Fatal(err)
		}
		if err := unstructured.UnstructuredJSONScheme.Encode(step.object, &want); err != nil {
			t.Fatal(err)
		}
		if got := len(encoded) > before; got != step.encodes || out.String() != want.String() {
			t.Errorf("%s %s of %s: encoded %t, got %s", step.of, step.form, want.String(), got, out.String())
		}
	}
	for range 3 * sharedEvents {
		shared.share(watch.Event{Type: watch.Added, Object: writtenAt("a", "", fmt.Sprint(time.Now().UnixNano()))}, false)
	}
	if n := len(shared.events.current) + len(shared.events.previous); n > 2*sharedEvents {
		t.Errorf("%d events are held", n)
	}
}

// TestEncodeOnceLarge: of large objects, fewer events are held.
func TestEncodeOnceLarge(t *testing.T) {
	shared := newEncodeOnce()
	encode := func(_ runtime.Object, w io.Writer) error {
		_, err := w.Write(make([]byte, recentBytes/4))
		return err
	}
	for version := range sharedEvents {
		event := shared.share(watch.Event{Type: watch.Added, Object: writtenAt("a", "", fmt.Sprint(version))}, false)
		if err := event.Object.(runtime.CacheableObject).CacheEncode("json", encode, io.Discard); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(shared.events.current) + len(shared.events.previous); n == 0 || n > 8 {
		t.Errorf("%d events are held", n)
	}
}

// TestEncodeOnceFails: what cannot be encoded is an error for each watch.
func TestEncodeOnceFails(t *testing.T) {
	shared := newEncodeOnce()
	for range 2 {
		event := shared.share(watch.Event{Type: watch.Added, Object: writtenAt("a", "", "5")}, false)
		fail := func(runtime.Object, io.Writer) error { return errors.New("it has no form") }
		if err := event.Object.(runtime.CacheableObject).CacheEncode("json", fail, io.Discard); err == nil {
			t.Error("encoded")
		}
	}
}

// TestEncodeOncePanics: where one watch panics, the others end, and do not leave the event out.
func TestEncodeOncePanics(t *testing.T) {
	shared := newEncodeOnce()
	encode := func() error {
		event := shared.share(watch.Event{Type: watch.Added, Object: writtenAt("a", "", "5")}, false)
		fail := func(runtime.Object, io.Writer) error { panic("it has no form") }
		return event.Object.(runtime.CacheableObject).CacheEncode("json", fail, io.Discard)
	}
	func() {
		defer func() { _ = recover() }()
		_ = encode()
	}()
	if encode() == nil {
		t.Error("encoded")
	}
}

// TestSharedEvents: watches of custom resources, with a selector and without, share what they send but for bookmarks and errors; those of
// other kinds share nothing.
func TestSharedEvents(t *testing.T) {
	shared := newEncodeOnce()
	start := func(encoded *encodeOnce, field fields.Selector, events ...watch.Event) watch.Interface {
		t.Helper()
		in := &steps{events: make(chan watch.Event, len(events))}
		b := &bookmarks{Interface: in, newObject: func() runtime.Object { return &unstructured.Unstructured{} }, interval: time.Hour,
			encoded: encoded}
		w, err := b.Watch(t.Context(), "/things", storage.ListOptions{ResourceVersion: "1", Predicate: storage.SelectionPredicate{
			Label: labels.Everything(), Field: field, AllowWatchBookmarks: true}})
		if err != nil {
			t.Fatal(err)
		}
		for _, event := range events {
			in.events <- event
		}
		return w
	}
	modified := func() watch.Event { return watch.Event{Type: watch.Modified, Object: writtenAt("a", "new", "5")} }
	all := start(shared, fields.Everything(), modified())
	mine := start(shared, fields.OneTermEqualSelector("type", "mine"), modified())
	first, ok := (<-all.ResultChan()).Object.(*sharedObject)
	second, also := (<-mine.ResultChan()).Object.(*sharedObject)
	if !ok || !also || first.encodings != second.encodings || first.Unstructured == second.Unstructured {
		t.Errorf("got %v and %v", first, second)
	}
	apart := []watch.Event{
		{Type: watch.Bookmark, Object: writtenAt("", "", "7")}, {Type: watch.Error, Object: &metav1.Status{}},
		{Type: watch.Modified, Object: &corev1.Secret{}},
	}
	w := start(shared, fields.Everything(), apart...)
	for _, want := range apart {
		if got := <-w.ResultChan(); got.Object != want.Object {
			t.Errorf("%s: got %T", want.Type, got.Object)
		}
	}
	if got := <-start(nil, fields.Everything(), modified()).ResultChan(); !isPlain(got) {
		t.Error("a kind without shared events shares one")
	}
	for _, w := range []watch.Interface{all, mine, w} {
		w.Stop()
	}
}

func isPlain(event watch.Event) bool {
	_, plain := event.Object.(*unstructured.Unstructured)
	return plain
}

// TestTrimmedEvents: clients in the process watch custom resources as their caches keep them, and all others watch the whole of them.
func TestTrimmedEvents(t *testing.T) {
	trim := func(object any) (any, error) {
		if o, ok := object.(*unstructured.Unstructured); ok {
			o.SetManagedFields(nil)
		}
		return object, nil
	}
	admin := user.Info(&user.DefaultInfo{Name: "admin"})
	network := genericrequest.WithUser(t.Context(), admin)
	here := context.WithValue(network, callerKey{}, admin)
	impersonated := genericrequest.WithUser(here, &user.DefaultInfo{Name: "somebody"})
	for _, tc := range []struct {
		ctx   context.Context //nolint:containedctx // that of a request
		field fields.Selector
		whole bool
	}{
		{here, fields.Everything(), false}, {here, fields.OneTermEqualSelector("type", "mine"), false},
		{network, fields.Everything(), true}, {impersonated, fields.Everything(), true},
	} {
		in := &steps{events: make(chan watch.Event, 1)}
		b := &bookmarks{Interface: in, newObject: func() runtime.Object { return &unstructured.Unstructured{} }, interval: time.Hour,
			encoded: newEncodeOnce(), trim: trim}
		w, err := b.Watch(tc.ctx, "/things", storage.ListOptions{ResourceVersion: "1", Predicate: storage.SelectionPredicate{
			Label: labels.Everything(), Field: tc.field, AllowWatchBookmarks: true}})
		if err != nil {
			t.Fatal(err)
		}
		object := writtenAt("a", "new", "5")
		object.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "somebody"}})
		in.events <- watch.Event{Type: watch.Modified, Object: object}
		got := (<-w.ResultChan()).Object.(*sharedObject)
		if whole := len(got.GetManagedFields()) > 0; whole != tc.whole {
			t.Errorf("%s, of %v: whole %t", tc.field, tc.ctx, whole)
		}
		w.Stop()
	}
}
