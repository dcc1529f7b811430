package capi

import (
	"context"
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// TestReferenceVersion: a reference to a kind that is not installed, which any tenant can write, must not fail lists of all objects.
func TestReferenceVersion(t *testing.T) {
	scheme := runtime.NewScheme()
	metav1.AddMetaToScheme(scheme)
	definition := func(name string, labels map[string]string) *metav1.PartialObjectMetadata {
		return &metav1.PartialObjectMetadata{
			TypeMeta:   metav1.TypeMeta{APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition"},
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		}
	}
	away := errors.New("the API does not answer")
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		definition("machines.known.example.com", map[string]string{"cluster.x-k8s.io/v1beta2": "v1"}),
		definition("machines.other.example.com", nil),
	).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if key.Name == "machines.away.example.com" {
				return away
			}
			return c.Get(ctx, key, obj, opts...)
		},
	}).Build()
	for group, want := range map[string]string{
		"known.example.com": "known.example.com/v1", "missing.example.com": "missing.example.com/unknown",
		"other.example.com": "other.example.com/unknown",
	} {
		got, err := referenceVersion(t.Context(), c, schema.GroupKind{Group: group, Kind: "Machine"})
		if err != nil || got != want {
			t.Errorf("%s: got %q, %v; want %q", group, got, err, want)
		}
	}
	if _, err := referenceVersion(t.Context(), c, schema.GroupKind{Group: "away.example.com", Kind: "Machine"}); !errors.Is(err, away) {
		t.Errorf("an API that does not answer: %v", err)
	}
}
