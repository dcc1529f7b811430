package embedded

import (
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
)

// TestUnresponsiveClient: a watch whose client takes no event ends, with and without a selector; that of a slow client goes on.
func TestUnresponsiveClient(t *testing.T) {
	for name, field := range map[string]fields.Selector{
		"all objects": fields.Everything(), "selector": fields.OneTermEqualSelector("type", "mine"),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { unresponsiveClient(t, field) })
		})
	}
}

func unresponsiveClient(t *testing.T, field fields.Selector) {
	in := &steps{events: make(chan watch.Event)}
	b := &bookmarks{Interface: in, newObject: func() runtime.Object { return &corev1.Secret{} }, interval: time.Hour}
	w, err := b.Watch(t.Context(), "/secrets", storage.ListOptions{ResourceVersion: "1", Predicate: storage.SelectionPredicate{
		Label: labels.Everything(), Field: field, AllowWatchBookmarks: true}})
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for version := 2; ; version++ {
			select {
			case in.events <- watch.Event{Type: watch.Modified, Object: at(version)}:
			case <-in.inner.StopChan():
				return
			}
		}
	}()
	for range 10 {
		time.Sleep(sendTimeout - time.Second)
		if in.inner.Stopping() {
			t.Fatal("the watch of a slow client has ended")
		}
		<-w.ResultChan()
	}
	time.Sleep(sendTimeout + time.Second)
	if !in.inner.Stopping() {
		t.Fatal("the watch goes on although its client takes nothing")
	}
	left := 0
	for range w.ResultChan() { // until it is closed
		left++
	}
	if left != outBuffer {
		t.Errorf("%d events were left for the client, want %d", left, outBuffer)
	}
}
