package capi

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestReconnect: a cluster that is to be reconnected is dropped once, and reconciled at once.
func TestReconnect(t *testing.T) {
	r := &reconnector{probes: &probes{}, pending: sets.New[client.ObjectKey]()}
	key := client.ObjectKey{Namespace: "fleet", Name: "demo"}
	r.request(key) // a replica that does not lead has no connections
	if !r.keep(key) {
		t.Error("a cluster is dropped although none was connected")
	}
	queue := r.newQueue("test", workqueue.DefaultTypedControllerRateLimiter[ctrl.Request]())
	defer queue.ShutDown()
	next := func() {
		t.Helper()
		got := make(chan ctrl.Request, 1)
		go func() {
			request, _ := queue.Get()
			got <- request
		}()
		select {
		case request := <-got:
			if request.NamespacedName != key {
				t.Errorf("got %v", request)
			}
			queue.Done(request)
		case <-time.After(10 * time.Second):
			t.Fatal("it is not reconciled")
		}
	}
	r.request(key)
	next()
	if r.keep(key) {
		t.Error("it is not dropped")
	}
	next()
	if !r.keep(key) {
		t.Error("it is dropped twice")
	}
}
