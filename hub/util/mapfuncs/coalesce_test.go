package mapfuncs

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
)

// A thousand reports at the same time are one reconcile, and each later one is looked at soon; in either queue that a manager may use.
func TestCoalesced(t *testing.T) {
	for name, newQueue := range map[string]func() workqueue.TypedRateLimitingInterface[ctrl.Request]{
		"plain": func() workqueue.TypedRateLimitingInterface[ctrl.Request] {
			return workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[ctrl.Request]())
		},
		"priority": func() workqueue.TypedRateLimitingInterface[ctrl.Request] {
			return priorityqueue.New[ctrl.Request]("test")
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := newQueue()
				defer q.ShutDown()
				testCoalesced(t, q)
			})
		})
	}
}

func testCoalesced(t *testing.T, q workqueue.TypedRateLimitingInterface[ctrl.Request]) {
	request := ctrl.Request{NamespacedName: client.ObjectKey{Namespace: "fleet", Name: "c"}}
	const delay = 100 * time.Millisecond
	h := Coalesced(delay, func(context.Context, client.Object) []ctrl.Request { return []ctrl.Request{request} })
	for i := range 1000 {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(i)}}
		h.Update(t.Context(), event.UpdateEvent{ObjectOld: secret, ObjectNew: secret}, q)
	}
	reconciles := func() (n int) {
		time.Sleep(2 * delay)
		synctest.Wait()
		for q.Len() > 0 {
			got, _ := q.Get()
			if got != request {
				t.Errorf("got %v", got)
			}
			q.Done(got)
			n++
		}
		return n
	}
	if n := reconciles(); n != 1 {
		t.Errorf("1000 reports are %d reconciles", n)
	}
	h.Create(t.Context(), event.CreateEvent{Object: &corev1.Secret{}}, q)
	h.Delete(t.Context(), event.DeleteEvent{Object: &corev1.Secret{}}, q)
	if n := reconciles(); n != 1 {
		t.Errorf("one more is %d reconciles", n)
	}
}
