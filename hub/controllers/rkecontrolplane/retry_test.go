package rkecontrolplane

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/source"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/testenv/fakeclient"
	"github.com/drover-dev/drover/hub/util/apierrors"
)

// TestFailuresRest: a cluster whose reconciles fail is reconciled less and less, also while its agents report all the time.
func TestFailuresRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		key := client.ObjectKey{Namespace: "fleet", Name: "one"}
		plane := &rkev1.RKEControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: "one", UID: "u"}}}}
		var reconciles []time.Time
		c := fake.NewClientBuilder().WithScheme(fakeclient.Scheme(t, rkev1.AddToScheme, clusterv1.AddToScheme)).WithObjects(plane).
			WithInterceptorFuncs(interceptor.Funcs{
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
					if _, is := obj.(*clusterv1.Cluster); is {
						reconciles = append(reconciles, time.Now())
						return kerrors.NewTimeoutError("request timed out", 1)
					}
					return c.Get(ctx, key, obj, opts...)
				},
			}).Build()
		r := &Reconciler{Client: c, Now: time.Now}
		loop, err := controller.NewUnmanaged("retry-test", controller.Options{Reconciler: apierrors.Requeue(r)})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		reports := source.Func(func(ctx context.Context, q workqueue.TypedRateLimitingInterface[ctrl.Request]) error {
			go func() {
				for ticker := time.NewTicker(coalesceTime); ; {
					select {
					case <-ticker.C:
						q.AddAfter(ctrl.Request{NamespacedName: key}, coalesceTime)
					case <-ctx.Done():
						return
					}
				}
			}()
			return nil
		})
		if err := loop.Watch(reports); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- loop.Start(ctx) }()
		// It ends between two items: a goroutine of the queue stays if it hands one out while the queue is shut down.
		time.Sleep(5*time.Minute + coalesceTime/2)
		cancel()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		var pauses []time.Duration
		for i := 1; i < len(reconciles); i++ {
			pauses = append(pauses, reconciles[i].Sub(reconciles[i-1]))
		}
		if len(pauses) < 10 || len(pauses) > 20 {
			t.Fatalf("%d reconciles in five minutes: %v between two of them", len(reconciles), pauses)
		}
		for i, pause := range pauses {
			if i > 0 && pause < pauses[i-1] || pause > lastRetry+time.Second {
				t.Errorf("%s between two reconciles, after %s", pause, pauses[max(i-1, 0)])
			}
		}
	})
}

// TestRetryDelay: what is no failure ends a row of them.
func TestRetryDelay(t *testing.T) {
	race := kerrors.NewConflict(schema.GroupResource{Resource: "secrets"}, "s", errors.New("changed"))
	failed, now, c := errors.New("failed"), time.Unix(1000, 0), &clusterPlans{}
	for i, step := range []struct {
		err        error
		rest, want time.Duration
	}{
		{nil, time.Second, time.Second}, {failed, 0, firstRetry}, {failed, time.Second, time.Second}, {failed, 0, 4 * firstRetry},
		{race, 0, 0}, {failed, 0, firstRetry}, {nil, 0, 0}, {failed, 0, firstRetry}, {failed, 0, 2 * firstRetry},
	} {
		if c.ended(step.err, now, step.rest); c.nextReconcile.Sub(now) != step.want {
			t.Errorf("step %d: the next reconcile is after %s, want %s", i, c.nextReconcile.Sub(now), step.want)
		}
	}
	for range 100 {
		c.ended(failed, now, 0)
	}
	if got := c.nextReconcile.Sub(now); got != lastRetry {
		t.Errorf("after a hundred failures it is %s", got)
	}
}
