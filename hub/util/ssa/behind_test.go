package ssa_test

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/drover-dev/drover/hub/testenv/fakeclient"
	"github.com/drover-dev/drover/hub/util/ssa"
)

// behind is a cache without objects that has come to a version.
type behind struct {
	cache.Cache
	version string
}

func (b *behind) Get(_ context.Context, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	return apierrors.NewNotFound(corev1.Resource("secrets"), key.Name)
}

func (b *behind) GetInformer(context.Context, client.Object, ...cache.InformerGetOption) (cache.Informer, error) {
	return fakeclient.InformerAt{Version: b.version}, nil
}

// TestPending: what was applied a moment ago is not applied again because the cache does not have it yet, and is once the cache has come
// further: it was deleted.
func TestPending(t *testing.T) {
	stored := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: applied.Namespace, Name: applied.Name, ResourceVersion: "7"}}
	c, requests := fakeclient.CountApplies(
		fake.NewClientBuilder().WithScheme(fakeclient.Scheme(t, corev1.AddToScheme)).WithObjects(stored).Build())
	known := &behind{version: "5"}
	applies := &ssa.Cache{Client: c, FieldOwner: "test", Metadata: known}
	wanted := func(label string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: applied.Namespace, Name: applied.Name,
			Labels: map[string]string{"mine": label}}}
	}
	apply := func(what, label string, want int, pending bool) {
		t.Helper()
		object := wanted(label)
		got, err := applies.Pending(t.Context(), reconciled, object)
		if err != nil || got != pending {
			t.Errorf("%s: pending %v (%v)", what, got, err)
		}
		if pending && object.ResourceVersion == "" {
			t.Errorf("%s: the metadata is not returned", what)
		}
		*requests = 0
		object = wanted(label)
		if err := applies.Apply(t.Context(), reconciled, object); err != nil {
			t.Fatal(err)
		}
		if *requests != want || object.ResourceVersion == "" {
			t.Errorf("%s: %d requests, want %d", what, *requests, want)
		}
		known.version = "5"
	}
	apply("new", "a", 1, false)
	apply("again", "a", 0, true)
	apply("changed", "b", 1, false)
	known.version = "99"
	apply("deleted", "b", 1, false)
	known.version = "not a number"
	apply("of a version that says nothing", "b", 1, false)
}
