package ssa_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/testenv/fakeclient"
	"github.com/drover-dev/drover/hub/util/ssa"
)

var (
	reconciled = client.ObjectKey{Namespace: "ns", Name: "reconciled"}
	applied    = client.ObjectKey{Namespace: "ns", Name: "one"}
)

// step applies an object with the cache of the steps before it.
type step struct {
	name string
	// before is what happens before the object is applied; it may be nil.
	before  func()
	want    client.Object
	request bool
}

// runSteps fails the test if a step makes more or fewer requests than it needs. check gets what the step wants, and the object
// as Apply has filled it.
func runSteps(t *testing.T, cache *ssa.Cache, requests *int, steps []step, check func(t *testing.T, want, got client.Object)) {
	t.Helper()
	for _, step := range steps {
		t.Run(step.name, func(t *testing.T) {
			if step.before != nil {
				step.before()
			}
			*requests = 0
			object := step.want.DeepCopyObject().(client.Object)
			if err := cache.Apply(t.Context(), reconciled, object); err != nil {
				t.Fatal(err)
			}
			if (*requests == 1) != step.request || *requests > 1 {
				t.Errorf("%d requests, needed: %t", *requests, step.request)
			}
			if object.GetResourceVersion() == "" {
				t.Error("the metadata is not returned")
			}
			check(t, step.want, object)
		})
	}
}

func TestCache(t *testing.T) {
	scheme := fakeclient.Scheme(t, rkev1.AddToScheme)
	c, requests := fakeclient.CountApplies(fake.NewClientBuilder().WithScheme(scheme).Build())
	cache := &ssa.Cache{Client: c, FieldOwner: "test"}
	template := func(cluster string) *rkev1.RKEBootstrapTemplate {
		return &rkev1.RKEBootstrapTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: applied.Namespace, Name: applied.Name,
			Labels: map[string]string{"mine": "1"}}, Spec: rkev1.RKEBootstrapTemplateSpec{ClusterName: cluster}}
	}
	stored := func() *rkev1.RKEBootstrapTemplate {
		object := &rkev1.RKEBootstrapTemplate{}
		if err := c.Get(t.Context(), applied, object); err != nil {
			t.Fatal(err)
		}
		return object
	}
	addLabel := func() {
		object := stored()
		metav1.SetMetaDataLabel(&object.ObjectMeta, "other", "b")
		if err := c.Update(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	takeLabel := func() {
		object := stored()
		delete(object.Labels, "mine")
		if err := c.Update(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	remove := func() {
		if err := c.Delete(t.Context(), stored()); err != nil {
			t.Fatal(err)
		}
	}
	a, b := template("a"), template("b")
	runSteps(t, cache, requests, []step{
		{name: "new object", want: a, request: true},
		{name: "no change", want: a},
		{name: "another spec", want: b, request: true},
		{name: "no change after that", want: b},
		// The fake API server counts no generations, so that each write may be one of the spec.
		{name: "label added by another writer", want: b, request: true, before: addLabel},
		{name: "label removed by another writer", want: b, request: true, before: takeLabel},
		{name: "no change after the label", want: b},
		{name: "deleted by another writer", want: b, request: true, before: remove},
	}, func(t *testing.T, want, got client.Object) {
		if s := stored(); s.ResourceVersion != got.GetResourceVersion() ||
			s.Spec.ClusterName != want.(*rkev1.RKEBootstrapTemplate).Spec.ClusterName {
			t.Errorf("the API server has %+v; wanted %+v, got %+v", s, want, got)
		}
	})
}

// TestCacheMetadata: with Metadata, the cache reads no content. Changes by other writers cost a request only if content is applied.
func TestCacheMetadata(t *testing.T) {
	scheme := fakeclient.Scheme(t, corev1.AddToScheme)
	c, requests := fakeclient.CountApplies(fake.NewClientBuilder().WithScheme(scheme).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if _, ok := obj.(*metav1.PartialObjectMetadata); !ok {
				t.Errorf("the content of %s is read", key)
			}
			return c.Get(ctx, key, obj, opts...)
		},
	}).Build())
	cache := &ssa.Cache{Client: c, FieldOwner: "test", Metadata: c}
	secret := func(data map[string][]byte) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: applied.Namespace, Name: applied.Name}, Data: data}
	}
	patch := func(body string) func() {
		return func() {
			t.Helper()
			if err := c.Patch(t.Context(), secret(nil), client.RawPatch(types.MergePatchType, []byte(body))); err != nil {
				t.Fatal(err)
			}
		}
	}
	forget := func(key client.ObjectKey) func() { return func() { cache.Forget(key) } }
	owner := func(uid string) string {
		return `{"apiVersion":"v1","kind":"ConfigMap","name":"o` + uid + `","uid":"` + uid + `"}`
	}
	owned := secret(nil)
	owned.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "o1", UID: "1"}}
	empty, filled := secret(nil), secret(map[string][]byte{"mine": []byte("1")})
	runSteps(t, cache, requests, []step{
		{name: "new object", want: empty, request: true},
		{name: "no change", want: empty},
		{name: "data added by another writer", want: empty, before: patch(`{"data":{"plan":"MQ=="}}`)},
		{name: "label added by another writer", want: empty, before: patch(`{"metadata":{"labels":{"a":"b"}}}`)},
		{name: "with an owner", want: owned, request: true},
		{name: "no change of the owner", want: owned},
		{name: "another owner added", want: owned, before: patch(`{"metadata":{"ownerReferences":[` + owner("1") + `,` + owner("2") + `]}}`)},
		{name: "the owner removed", want: owned, request: true, before: patch(`{"metadata":{"ownerReferences":[` + owner("2") + `]}}`)},
		{name: "with data", want: filled, request: true},
		{name: "no change of the data", want: filled},
		{name: "more data added by another writer", want: filled, request: true, before: patch(`{"data":{"plan":"Mg=="}}`)},
		{name: "another object forgotten", want: filled, before: forget(client.ObjectKey{Namespace: "ns", Name: "other"})},
		{name: "object forgotten", want: filled, request: true, before: forget(reconciled)},
	}, func(*testing.T, client.Object, client.Object) {})
}

// TestCacheBehind: what was applied is not applied again while the cache has not seen it yet.
func TestCacheBehind(t *testing.T) {
	var behind *corev1.ConfigMap
	server := fake.NewClientBuilder().WithScheme(fakeclient.Scheme(t, corev1.AddToScheme)).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if into, ok := obj.(*corev1.ConfigMap); ok && behind != nil {
				behind.DeepCopyInto(into)
				return nil
			}
			return c.Get(ctx, key, obj, opts...)
		},
	}).Build()
	c, requests := fakeclient.CountApplies(server)
	cache := &ssa.Cache{Client: c, FieldOwner: "test"}
	labeled := func(value string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: applied.Namespace, Name: applied.Name,
			Labels: map[string]string{"label": value}}}
	}
	read := func() *corev1.ConfigMap {
		behind = nil
		object := &corev1.ConfigMap{}
		if err := server.Get(t.Context(), applied, object); err != nil {
			t.Fatal(err)
		}
		return object
	}
	same := func(*testing.T, client.Object, client.Object) {}
	runSteps(t, cache, requests, []step{
		{name: "new", want: labeled("first"), request: true},
		{name: "another label", before: func() { behind = read() }, want: labeled("second"), request: true},
		{name: "the cache has the first", want: labeled("second")},
		{name: "somebody has changed it since", before: func() {
			changed := read()
			changed.Labels["label"] = "theirs"
			if err := server.Update(t.Context(), changed); err != nil {
				t.Fatal(err)
			}
		}, want: labeled("second"), request: true},
	}, same)
}

// TestCacheBehindGeneration: the generation that an object got when it was applied is known before the cache has it.
func TestCacheBehindGeneration(t *testing.T) {
	label := func(value string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: applied.Namespace, Name: applied.Name,
			Labels: map[string]string{"label": value}}}
	}
	behind, requests := label("old"), 0
	c := fake.NewClientBuilder().WithScheme(fakeclient.Scheme(t, corev1.AddToScheme)).WithObjects(behind.DeepCopy()).
		WithInterceptorFuncs(interceptor.Funcs{
			Get: func(_ context.Context, _ client.WithWatch, _ client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
				behind.DeepCopyInto(obj.(*corev1.ConfigMap))
				return nil
			},
			Apply: func(ctx context.Context, c client.WithWatch, obj runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
				requests++
				err := c.Apply(ctx, obj, opts...)
				obj.(interface{ SetGeneration(generation int64) }).SetGeneration(2) // the fake API server counts none
				return err
			},
		}).Build()
	behind.ResourceVersion, behind.Generation = "1", 1
	cache := &ssa.Cache{Client: c, FieldOwner: "test"}
	for range 2 {
		object := label("new")
		if err := cache.Apply(t.Context(), reconciled, object); err != nil || object.Generation != 2 || requests != 1 {
			t.Errorf("generation %d after %d requests (%v)", object.Generation, requests, err)
		}
	}
}

// TestCacheStaysBehind: a cache that does not come to the version that was applied is of an API server that was restored from a backup.
func TestCacheStaysBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		label := func(value string) *corev1.ConfigMap {
			return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: applied.Namespace, Name: applied.Name,
				Labels: map[string]string{"label": value}}}
		}
		restored := label("old")
		get := func(_ context.Context, _ client.WithWatch, _ client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
			restored.DeepCopyInto(obj.(*corev1.ConfigMap))
			return nil
		}
		server := fake.NewClientBuilder().WithScheme(fakeclient.Scheme(t, corev1.AddToScheme)).WithObjects(restored.DeepCopy()).
			WithInterceptorFuncs(interceptor.Funcs{Get: get}).Build()
		c, requests := fakeclient.CountApplies(server)
		cache := &ssa.Cache{Client: c, FieldOwner: "test"}
		restored.ResourceVersion = "1"
		for _, step := range []struct {
			after time.Duration
			want  int
		}{{0, 1}, {30 * time.Second, 1}, {time.Minute, 2}} {
			time.Sleep(step.after)
			if err := cache.Apply(t.Context(), reconciled, label("new")); err != nil || *requests != step.want {
				t.Errorf("another %s later: %d requests were sent, want %d (%v)", step.after, *requests, step.want, err)
			}
		}
	})
}
