package ssa

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

var reconciled = client.ObjectKey{Namespace: "ns", Name: "reconciled"}

// TestCache counts requests.
func TestCache(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := rkev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	requests := 0
	c := fake.NewClientBuilder().WithScheme(scheme).WithInterceptorFuncs(interceptor.Funcs{
		Apply: func(ctx context.Context, c client.WithWatch, obj runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			requests++
			return c.Apply(ctx, obj, opts...)
		},
	}).Build()
	cache := &Cache{Client: c, FieldOwner: "test"}
	wanted := func(cluster string) *rkev1.RKEBootstrapTemplate {
		return &rkev1.RKEBootstrapTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "one"},
			Spec: rkev1.RKEBootstrapTemplateSpec{ClusterName: cluster}}
	}
	stored := func() *rkev1.RKEBootstrapTemplate {
		object := &rkev1.RKEBootstrapTemplate{}
		if err := c.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "one"}, object); err != nil {
			t.Fatal(err)
		}
		return object
	}
	for _, step := range []struct {
		name   string
		before func()
		want   string
		// asks is whether a request is needed.
		asks bool
	}{
		{name: "it is new", want: "a", asks: true},
		{name: "nothing has changed", want: "a"},
		{name: "something else is wanted", want: "b", asks: true},
		{name: "nothing has changed after that", want: "b"},
		{name: "somebody has changed a label", want: "b", asks: true, before: func() {
			object := stored()
			object.Labels = map[string]string{"a": "b"}
			if err := c.Update(t.Context(), object); err != nil {
				t.Fatal(err)
			}
		}},
		{name: "the label was nobody's business", want: "b"},
		{name: "somebody has deleted it", want: "b", asks: true, before: func() {
			if err := c.Delete(t.Context(), stored()); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(step.name, func(t *testing.T) {
			if step.before != nil {
				step.before()
			}
			requests = 0
			object := wanted(step.want)
			if err := cache.Apply(t.Context(), reconciled, object); err != nil {
				t.Fatal(err)
			}
			if (requests > 0) != step.asks || requests > 1 {
				t.Errorf("%d requests were made", requests)
			}
			if object.ResourceVersion == "" || object.ResourceVersion != stored().ResourceVersion || stored().Spec.ClusterName != step.want {
				t.Errorf("the object is %+v, the API server has %+v", object, stored())
			}
		})
	}
}

// TestCacheOfMetadata: where only metadata is read, what others write into an object costs a request only where content of it is wanted.
func TestCacheOfMetadata(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	requests := 0
	c := fake.NewClientBuilder().WithScheme(scheme).WithInterceptorFuncs(interceptor.Funcs{
		Apply: func(ctx context.Context, c client.WithWatch, obj runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			requests++
			return c.Apply(ctx, obj, opts...)
		},
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if _, ok := obj.(*metav1.PartialObjectMetadata); !ok {
				t.Errorf("the content of %s is read", key)
			}
			return c.Get(ctx, key, obj, opts...)
		},
	}).Build()
	cache := &Cache{Client: c, FieldOwner: "test", Metadata: c}
	patch := func(body string) func() {
		return func() {
			t.Helper()
			object := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "one"}}
			if err := c.Patch(t.Context(), object, client.RawPatch(types.MergePatchType, []byte(body))); err != nil {
				t.Fatal(err)
			}
		}
	}
	data := map[string][]byte{"mine": []byte("1")}
	for _, step := range []struct {
		name   string
		before func()
		want   map[string][]byte
		asks   bool
	}{
		{name: "it is new", asks: true},
		{name: "nothing has changed"},
		{name: "somebody has written data", before: patch(`{"data":{"plan":"MQ=="}}`)},
		{name: "somebody has written a label", asks: true, before: patch(`{"metadata":{"labels":{"a":"b"}}}`)},
		{name: "data is wanted", want: data, asks: true},
		{name: "the data is there", want: data},
		{name: "somebody has written data beside it", want: data, asks: true, before: patch(`{"data":{"plan":"Mg=="}}`)},
		{name: "another object was deleted", want: data, before: func() { cache.Forget(client.ObjectKey{Namespace: "ns", Name: "other"}) }},
		{name: "it is forgotten", want: data, asks: true, before: func() {
			cache.Forget(reconciled)
		}},
	} {
		t.Run(step.name, func(t *testing.T) {
			if step.before != nil {
				step.before()
			}
			requests = 0
			object := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "one"}, Data: step.want}
			if err := cache.Apply(t.Context(), reconciled, object); err != nil {
				t.Fatal(err)
			}
			if (requests > 0) != step.asks || requests > 1 {
				t.Errorf("%d requests were made", requests)
			}
			if object.ResourceVersion == "" {
				t.Error("the metadata is not returned")
			}
		})
	}
}
