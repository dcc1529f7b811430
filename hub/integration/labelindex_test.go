package integration

import (
	"context"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/hub/testenv"
	"github.com/drover-dev/drover/hub/testenv/fakeclient"
	"github.com/drover-dev/drover/hub/util/labelindex"
)

// TestLabelIndex: what a cache returns for a label is found by an index, in each form in which it keeps objects, also when the index is
// added to a cache that is full, and when labels change later.
func TestLabelIndex(t *testing.T) {
	t.Parallel()
	config, namespace, other := apiServer(t), newNamespace(t), newNamespace(t)
	scheme := fakeclient.Scheme(t, clientgoscheme.AddToScheme)
	writer, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	object := func(namespace, name, cluster string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name,
			Labels: map[string]string{"test.drover/cluster": cluster, "test.drover/mine": namespace}}}
	}
	create := func(o client.Object) {
		t.Helper()
		if err := writer.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	create(object(namespace, "a1", "a"))
	create(object(namespace, "b1", "b"))
	create(object(other, "a2", "a"))

	inner, err := cache.New(config, cache.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	indexed := &labelindex.Cache{Cache: inner, Scheme: scheme, Keys: []string{"test.drover/cluster"}}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- indexed.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	if !indexed.WaitForCacheSync(t.Context()) {
		t.Fatal("the cache has not started")
	}
	kind := corev1.SchemeGroupVersion.WithKind("ConfigMapList")
	lists := map[string]func() client.ObjectList{
		"typed": func() client.ObjectList { return &corev1.ConfigMapList{} },
		"unstructured": func() client.ObjectList {
			l := &unstructured.UnstructuredList{}
			l.SetGroupVersionKind(kind)
			return l
		},
		"metadata": func() client.ObjectList {
			l := &metav1.PartialObjectMetadataList{}
			l.SetGroupVersionKind(kind)
			return l
		},
	}
	await := func(what, cluster string, in []client.ListOption, want ...string) {
		t.Helper()
		for form, newList := range lists {
			testenv.Until(t, what+", "+form, func() error {
				list := newList()
				if err := indexed.List(t.Context(), list, append(in, client.MatchingLabels{"test.drover/cluster": cluster})...); err != nil {
					return err
				}
				if got := names(t, list); !slices.Equal(got, want) {
					return fmt.Errorf("%v, want %v", got, want)
				}
				return nil
			})
		}
	}
	here := []client.ListOption{client.InNamespace(namespace)}
	// The caches are full before they are listed by the label.
	for _, newList := range lists {
		if err := indexed.List(t.Context(), newList(), here...); err != nil {
			t.Fatal(err)
		}
	}
	await("those of a", "a", here, "a1")
	await("those of all namespaces", "a", nil, "a1", "a2")
	await("those of none", "c", here)
	create(object(namespace, "a3", "a"))
	await("a new one", "a", here, "a1", "a3")
	moved := object(namespace, "a1", "b")
	if err := writer.Update(t.Context(), moved); err != nil {
		t.Fatal(err)
	}
	await("one whose label has changed", "a", here, "a3")
	await("one that got the label", "b", here, "a1", "b1")
	if err := writer.Delete(t.Context(), object(namespace, "b1", "")); err != nil {
		t.Fatal(err)
	}
	await("without the deleted one", "b", here, "a1")
}

func names(t *testing.T, list client.ObjectList) (names []string) {
	t.Helper()
	err := apimeta.EachListItem(list, func(o runtime.Object) error {
		names = append(names, o.(client.Object).GetName())
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	return names
}
