package embedded

import (
	"context"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
)

// TestSelectiveBookmarks: a watch of which no object is written is known what was written of others of its kind, and can be continued from
// there.
func TestSelectiveBookmarks(t *testing.T) {
	_, client := start(t, Options{DataDir: t.TempDir(), bookmarks: 100 * time.Millisecond})
	maps := client.CoreV1().ConfigMaps("default")
	mine := metav1.ListOptions{LabelSelector: "mine=true"}
	found, err := maps.List(t.Context(), mine)
	if err != nil {
		t.Fatal(err)
	}
	mine.ResourceVersion, mine.AllowWatchBookmarks = found.ResourceVersion, true
	watched, err := maps.Watch(t.Context(), mine)
	if err != nil {
		t.Fatal(err)
	}
	defer watched.Stop()
	written := writeConfigMap(t, client)
	// Others are written all the time, so that etcd says nothing.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			_, _ = maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "others-"}}, metav1.CreateOptions{})
			time.Sleep(10 * time.Millisecond)
		}
	}()
	late := time.After(30 * time.Second)
	for known := false; !known; {
		select {
		case event := <-watched.ResultChan():
			if event.Type != watch.Bookmark {
				t.Fatalf("got %s %v", event.Type, event.Object)
			}
			mine.ResourceVersion = event.Object.(metav1.Object).GetResourceVersion()
			known = versionOf(t, event.Object.(metav1.Object)) >= versionOf(t, written)
		case <-late:
			t.Fatal("no bookmark says that others were written")
		}
	}
	cancel()
	<-ended
	if _, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "mine",
		Labels: map[string]string{"mine": "true"}}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	continued, err := maps.Watch(t.Context(), mine)
	if err != nil {
		t.Fatal(err)
	}
	defer continued.Stop()
	for _, w := range []watch.Interface{watched, continued} {
		for event := range w.ResultChan() {
			if event.Type == watch.Bookmark {
				continue
			}
			if event.Type != watch.Added || event.Object.(*corev1.ConfigMap).Name != "mine" {
				t.Errorf("got %s %v", event.Type, event.Object)
			}
			break
		}
	}
}

// steps is a storage that looks at objects, and sends events, as the test wants.
type steps struct {
	storage.Interface
	opts   storage.ListOptions
	events chan watch.Event
	// inner is the last watch.
	inner *watch.ProxyWatcher
}

func (s *steps) Watch(_ context.Context, _ string, opts storage.ListOptions) (watch.Interface, error) {
	s.opts, s.inner = opts, watch.NewProxyWatcher(s.events)
	return s.inner, nil
}

func at(version int) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{ResourceVersion: strconv.Itoa(version)}}
}

// TestBookmarkOrder: no bookmark is ahead of an event that has not been sent.
func TestBookmarkOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := &steps{events: make(chan watch.Event, 10)}
		b := &bookmarks{Interface: in, newObject: func() runtime.Object { return &corev1.Secret{} }, interval: time.Second}
		opts := storage.ListOptions{ResourceVersion: "1", Predicate: storage.SelectionPredicate{Label: labels.Everything(),
			Field: fields.OneTermEqualSelector("type", "mine"), AllowWatchBookmarks: true,
			GetAttrs: func(runtime.Object) (labels.Set, fields.Set, error) { return nil, fields.Set{"type": "other"}, nil }}}
		w, err := b.Watch(t.Context(), "/", opts)
		if err != nil {
			t.Fatal(err)
		}
		look := func(version int) {
			if _, err := in.opts.Predicate.Matches(at(version)); err != nil {
				t.Fatal(err)
			}
		}
		next := func(kind watch.EventType, version string) {
			t.Helper()
			select {
			case event := <-w.ResultChan():
				if got := event.Object.(*corev1.Secret).ResourceVersion; event.Type != kind || got != version {
					t.Fatalf("got %s %s, want %s %s", event.Type, got, kind, version)
				}
			case <-time.After(time.Minute):
				t.Fatalf("no %s %s", kind, version)
			}
		}
		nothing := func() {
			t.Helper()
			select {
			case event := <-w.ResultChan():
				t.Fatalf("got %v", event)
			case <-time.After(time.Minute):
			}
		}
		nothing()
		look(5)
		next(watch.Bookmark, "4")
		nothing()
		look(7)
		look(3) // what the object was before
		next(watch.Bookmark, "6")
		// The storage has sent 8, and looks at 9, which is for the watch, too.
		in.events <- watch.Event{Type: watch.Modified, Object: at(8)}
		look(9)
		next(watch.Modified, "8")
		nothing()
		in.events <- watch.Event{Type: watch.Modified, Object: at(9)}
		next(watch.Modified, "9")
		nothing()
		look(11)
		next(watch.Bookmark, "10")
		w.Stop()
		if _, open := <-w.ResultChan(); open {
			t.Error("a watch that was stopped goes on")
		}
	})
}

// TestBookmarksAfterInitialEvents: while a watch gets what it begins with, in the order of keys, no bookmark comes.
func TestBookmarksAfterInitialEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := &steps{events: make(chan watch.Event, 10)}
		b := &bookmarks{Interface: in, newObject: func() runtime.Object { return &corev1.Secret{} }, interval: time.Second}
		opts := storage.ListOptions{SendInitialEvents: new(true), Predicate: storage.SelectionPredicate{Label: labels.Everything(),
			Field: fields.OneTermEqualSelector("type", "mine"), AllowWatchBookmarks: true,
			GetAttrs: func(runtime.Object) (labels.Set, fields.Set, error) { return nil, nil, nil }}}
		w, err := b.Watch(t.Context(), "/", opts)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Stop()
		look := func(version int) {
			if _, err := in.opts.Predicate.Matches(at(version)); err != nil {
				t.Fatal(err)
			}
		}
		look(8)
		select {
		case event := <-w.ResultChan():
			t.Fatalf("got %v before 5, which is still to come", event)
		case <-time.After(time.Minute):
		}
		in.events <- watch.Event{Type: watch.Added, Object: at(5)}
		end := at(10)
		if err := storage.AnnotateInitialEventsEndBookmark(end); err != nil {
			t.Fatal(err)
		}
		in.events <- watch.Event{Type: watch.Bookmark, Object: end}
		for _, want := range []string{"5", "10"} {
			if event := <-w.ResultChan(); event.Object.(*corev1.Secret).ResourceVersion != want {
				t.Fatalf("got %v, want %s", event, want)
			}
		}
		look(15)
		if event := <-w.ResultChan(); event.Type != watch.Bookmark || event.Object.(*corev1.Secret).ResourceVersion != "14" {
			t.Errorf("got %v, want a bookmark of 14", event)
		}
	})
}

// TestOtherWatches: watches without a selector, that take no bookmarks, or that begin with what there is, are left alone.
func TestOtherWatches(t *testing.T) {
	in := &steps{events: make(chan watch.Event)}
	b := &bookmarks{Interface: in, newObject: func() runtime.Object { return &corev1.Secret{} }, interval: time.Second}
	mine := storage.SelectionPredicate{Label: labels.Everything(), Field: fields.OneTermEqualSelector("type", "mine"),
		AllowWatchBookmarks: true}
	none := mine
	none.AllowWatchBookmarks = false
	everything := storage.SelectionPredicate{Label: labels.Everything(), Field: fields.Everything(), AllowWatchBookmarks: true}
	for name, opts := range map[string]storage.ListOptions{
		"no version":   {Predicate: mine},
		"any version":  {ResourceVersion: "0", Predicate: mine},
		"version zero": {ResourceVersion: "00", Predicate: mine},
		"no bookmarks": {ResourceVersion: "5", Predicate: none},
		"everything":   {ResourceVersion: "5", Predicate: everything},
	} {
		w, err := b.Watch(t.Context(), "/", opts)
		if err != nil {
			t.Fatal(err)
		}
		if _, wrapped := w.(*selectiveWatch); wrapped {
			t.Errorf("%s: it gets bookmarks of its own", name)
		}
		if in.opts.ProgressNotify != opts.Predicate.AllowWatchBookmarks {
			t.Errorf("%s: bookmarks of etcd: %v", name, in.opts.ProgressNotify)
		}
	}
}
