package capi

import (
	"context"
	"errors"
	goruntime "runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// TestTurns: only so many requests are sent at once, and one whose reconcile ends waits no longer.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent atomic.Int64
		slow := func() error {
			sent.Add(1)
			time.Sleep(time.Second)
			return nil
		}
		c := newTurns(fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
			Apply: func(context.Context, client.WithWatch, runtime.ApplyConfiguration, ...client.ApplyOption) error {
				return slow()
			},
			Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
				return slow()
			},
		}).Build())
		atOnce := 2 * goruntime.GOMAXPROCS(0)
		began := time.Now()
		for range atOnce {
			go func() {
				if err := c.Patch(t.Context(), &clusterv1.Machine{}, client.Merge); err != nil {
					t.Error(err)
				}
			}()
		}
		synctest.Wait()
		ended, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		object := client.ApplyConfigurationFromUnstructured(&unstructured.Unstructured{})
		if err := c.Apply(ended, object); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a reconcile that ends waits: %v", err)
		}
		if err := c.Apply(t.Context(), object); err != nil || time.Since(began) != 2*time.Second {
			t.Errorf("one more is done after %s: %v", time.Since(began), err)
		}
		if got, want := sent.Load(), int64(atOnce+1); got != want {
			t.Errorf("%d requests were sent, want %d", got, want)
		}
	})
}

// TestTurnEnds: a request that takes long does not hold up others.
func TestTurnEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTurns(fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
			Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
				time.Sleep(time.Minute)
				return nil
			},
			Apply: func(context.Context, client.WithWatch, runtime.ApplyConfiguration, ...client.ApplyOption) error {
				return nil
			},
		}).Build())
		for range 2 * goruntime.GOMAXPROCS(0) {
			go func() { _ = c.Patch(t.Context(), &clusterv1.Machine{}, client.Merge) }()
		}
		synctest.Wait()
		began := time.Now()
		err := c.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(&unstructured.Unstructured{}))
		if waited := time.Since(began); err != nil || waited != turnTime {
			t.Errorf("it waited %s: %v", waited, err)
		}
		time.Sleep(time.Minute)
	})
}

// TestTurnOutlivesReconcile: what has been sent when the time of a reconcile ends is answered, and nothing is sent afterwards.
func TestTurnOutlivesReconcile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sent := 0
		c := newTurns(fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
			Apply: func(ctx context.Context, _ client.WithWatch, _ runtime.ApplyConfiguration, _ ...client.ApplyOption) error {
				sent++
				select {
				case <-time.After(time.Second):
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			},
		}).Build())
		reconcile, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		object := client.ApplyConfigurationFromUnstructured(&unstructured.Unstructured{})
		if err := c.Apply(reconcile, object); err != nil {
			t.Errorf("a request that is sent: %v", err)
		}
		if err := c.Apply(reconcile, object); !errors.Is(err, context.DeadlineExceeded) || sent != 1 {
			t.Errorf("%d requests are sent, the last after the end: %v", sent, err)
		}
		began := time.Now()
		stopped, stop := context.WithCancel(t.Context())
		time.AfterFunc(time.Millisecond, stop)
		if err := c.Apply(stopped, object); !errors.Is(err, context.Canceled) || time.Since(began) != time.Millisecond {
			t.Errorf("when the hub stops it is waited for: %v after %s", err, time.Since(began))
		}
	})
}

// TestTurnsCompleteMachine: when the time of a reconcile ends, what belongs to a Machine that it has begun to create is still written, or
// deleted, and that of another is not.
func TestTurnsCompleteMachine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent []string
		send := func(ctx context.Context, what string) error {
			if err := ctx.Err(); err != nil {
				return err
			}
			sent = append(sent, what)
			time.Sleep(time.Second)
			return nil
		}
		c := newTurns(fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
			Apply: func(ctx context.Context, _ client.WithWatch, o runtime.ApplyConfiguration, _ ...client.ApplyOption) error {
				return send(ctx, "apply "+(&unstructured.Unstructured{Object: o.(runtime.Unstructured).UnstructuredContent()}).GetName())
			},
			Patch: func(ctx context.Context, _ client.WithWatch, o client.Object, _ client.Patch, _ ...client.PatchOption) error {
				return send(ctx, "patch "+o.GetName())
			},
			Delete: func(ctx context.Context, _ client.WithWatch, o client.Object, _ ...client.DeleteOption) error {
				return send(ctx, "delete "+o.GetName())
			},
		}).Build())
		object := func(name string) *unstructured.Unstructured {
			return &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": name}}}
		}
		apply := func(ctx context.Context, name string) error {
			return c.Apply(ctx, client.ApplyConfigurationFromUnstructured(object(name)))
		}
		reconcile, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		for _, err := range []error{apply(reconcile, "a"), c.Patch(reconcile, object("a"), client.Merge), apply(reconcile, "a"),
			c.Delete(reconcile, object("a"))} {
			if err != nil {
				t.Errorf("a Machine that is begun: %v", err)
			}
		}
		if err := apply(reconcile, "b"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("another Machine is begun: %v", err)
		}
		if err := c.Delete(reconcile, object("b")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("another Machine is deleted: %v", err)
		}
		time.Sleep(begunFor)
		if err := apply(reconcile, "a"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("long after that: %v", err)
		}
		if want := []string{"apply a", "patch a", "apply a", "delete a"}; !slices.Equal(sent, want) {
			t.Errorf("sent %v, want %v", sent, want)
		}
	})
}
