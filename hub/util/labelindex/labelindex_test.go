package labelindex

import (
	"context"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/hub/testenv/fakeclient"
)

// recorder is a cache that records how it is listed, and which indexes it gets.
type recorder struct {
	cache.Cache
	listed  client.ListOptions
	indexes []string
	values  client.IndexerFunc
}

func (r *recorder) List(_ context.Context, _ client.ObjectList, opts ...client.ListOption) error {
	r.listed = client.ListOptions{}
	r.listed.ApplyOptions(opts)
	return nil
}

func (r *recorder) IndexField(_ context.Context, obj client.Object, field string, values client.IndexerFunc) error {
	r.indexes = append(r.indexes, obj.GetObjectKind().GroupVersionKind().Kind+" "+field)
	if _, typed := obj.(*corev1.Secret); typed {
		r.indexes[len(r.indexes)-1] = "typed " + field
	}
	r.values = values
	return nil
}

func (r *recorder) RemoveInformer(context.Context, client.Object) error { return nil }

func newCache(t *testing.T) (*Cache, *recorder) {
	inner := &recorder{}
	return &Cache{Cache: inner, Scheme: fakeclient.Scheme(t, corev1.AddToScheme), Keys: []string{"set", "cluster"}}, inner
}

// TestSelectors: the index is asked for one value of one label, of which fewer objects have the first; everything else is looked up as
// before.
func TestSelectors(t *testing.T) {
	parse := func(text string) client.ListOption {
		selector, err := labels.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		return client.MatchingLabelsSelector{Selector: selector}
	}
	for name, tc := range map[string]struct {
		opts []client.ListOption
		want string
	}{
		"a label":             {[]client.ListOption{client.MatchingLabels{"cluster": "a", "other": "x"}}, Field + "=cluster=a"},
		"both":                {[]client.ListOption{client.MatchingLabels{"cluster": "a", "set": "b"}}, Field + "=set=b"},
		"parsed":              {[]client.ListOption{parse("cluster=a,other")}, Field + "=cluster=a"},
		"in one":              {[]client.ListOption{parse("cluster in (a)")}, Field + "=cluster=a"},
		"in two":              {[]client.ListOption{parse("cluster in (a,b)")}, ""},
		"any value":           {[]client.ListOption{parse("cluster")}, ""},
		"not":                 {[]client.ListOption{parse("cluster!=a")}, ""},
		"another label":       {[]client.ListOption{client.MatchingLabels{"other": "x"}}, ""},
		"none":                {nil, ""},
		"a selector of field": {[]client.ListOption{client.MatchingLabels{"cluster": "a"}, client.MatchingFields{"f": "v"}}, "f=v"},
	} {
		t.Run(name, func(t *testing.T) {
			c, inner := newCache(t)
			opts := append([]client.ListOption{client.InNamespace("ns"), client.UnsafeDisableDeepCopy}, tc.opts...)
			if err := c.List(t.Context(), &corev1.SecretList{}, opts...); err != nil {
				t.Fatal(err)
			}
			var want client.ListOptions
			want.ApplyOptions(opts)
			got := ""
			if inner.listed.FieldSelector != nil {
				got = inner.listed.FieldSelector.Requirements()[0].Field + "=" + inner.listed.FieldSelector.Requirements()[0].Value
			}
			if got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
			inner.listed.FieldSelector, want.FieldSelector = nil, nil
			if got, want := fmt.Sprintf("%+v", inner.listed.AsListOptions()), fmt.Sprintf("%+v", want.AsListOptions()); got != want ||
				inner.listed.Namespace != "ns" || !*inner.listed.UnsafeDisableDeepCopy {
				t.Errorf("other options: %s, want %s", got, want)
			}
		})
	}
}

// TestIndexes: each informer gets one index, when it is first listed by a label; a new one, after it was removed, gets one again.
func TestIndexes(t *testing.T) {
	c, inner := newCache(t)
	list := func(list client.ObjectList) {
		t.Helper()
		if err := c.List(t.Context(), list, client.MatchingLabels{"cluster": "a"}); err != nil {
			t.Fatal(err)
		}
	}
	dynamic := &unstructured.UnstructuredList{}
	dynamic.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("SecretList"))
	metadata := &metav1.PartialObjectMetadataList{}
	metadata.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ServiceAccountList"))
	for range 2 {
		list(&corev1.SecretList{})
		list(dynamic)
		list(metadata)
	}
	if err := c.RemoveInformer(t.Context(), &corev1.Secret{}); err != nil {
		t.Fatal(err)
	}
	list(&corev1.SecretList{})
	want := []string{"typed " + Field, "Secret " + Field, "ServiceAccount " + Field, "typed " + Field}
	if !slices.Equal(inner.indexes, want) {
		t.Errorf("got %v, want %v", inner.indexes, want)
	}
	values := inner.values(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"cluster": "a", "set": "", "other": "x"}}})
	slices.Sort(values)
	if want := []string{"cluster=a", "set="}; !slices.Equal(values, want) {
		t.Errorf("values %v, want %v", values, want)
	}
	if err := c.List(t.Context(), unknownList{}, client.MatchingLabels{"cluster": "a"}); err == nil {
		t.Error("a kind that the scheme does not have was listed")
	}
}

type unknownList struct{ client.ObjectList }

func (unknownList) DeepCopyObject() runtime.Object { return unknownList{} }
