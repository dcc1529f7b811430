// Package labelindex lists objects with certain labels from a cache by an index. A cache of controller-runtime looks at all objects of a
// namespace when it lists those with a label, so that each reconcile of a cluster would cost the more, the more clusters there are.
package labelindex

import (
	"context"
	"fmt"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// Field is the name of the index. Its values are labels in the form key=value.
const Field = "drover.labels"

// Cache is a cache that has an index of each kind that is listed by one of Keys. What it returns is the same as without.
type Cache struct {
	cache.Cache
	Scheme *runtime.Scheme
	// Keys are the labels in the index. A list by several of them uses the first.
	Keys []string

	// adding is held while an index is added to an informer, or an informer is removed.
	adding sync.Mutex
	// indexed has the key informer of each that has the index.
	indexed sync.Map
}

// informer identifies one of a cache: objects of a kind are kept once for each of these forms.
type informer struct {
	schema.GroupVersionKind
	form string
}

// List implements client.Reader. A selector of fields goes before the labels.
func (c *Cache) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	options := (&client.ListOptions{}).ApplyOptions(opts)
	value := c.value(options.LabelSelector)
	if value == "" || options.FieldSelector != nil {
		return c.Cache.List(ctx, list, opts...)
	}
	of, err := c.informerOf(list)
	if err != nil {
		return err
	}
	if err := c.index(ctx, of); err != nil {
		return err
	}
	options.FieldSelector = fields.OneTermEqualSelector(Field, value)
	if err = c.Cache.List(ctx, list, options); err == nil {
		return nil
	}
	c.adding.Lock() // it may be that the informer is being removed
	_, indexed := c.indexed.Load(of)
	c.adding.Unlock()
	if indexed {
		return err
	}
	// The informer was removed meanwhile, and there is a new one.
	if err := c.index(ctx, of); err != nil {
		return err
	}
	return c.Cache.List(ctx, list, options)
}

// RemoveInformer implements cache.Informers.
func (c *Cache) RemoveInformer(ctx context.Context, obj client.Object) error {
	gvk, err := apiutil.GVKForObject(obj, c.Scheme)
	if err != nil {
		return fmt.Errorf("finding the kind of %T: %w", obj, err)
	}
	c.adding.Lock()
	defer c.adding.Unlock()
	if err := c.Cache.RemoveInformer(ctx, obj); err != nil {
		return err
	}
	c.indexed.Delete(informer{gvk, formOf(obj)})
	return nil
}

// value is what the index has for a selector; empty where it does not ask for one value of a label in the index.
func (c *Cache) value(selector labels.Selector) string {
	if selector == nil {
		return ""
	}
	for _, key := range c.Keys {
		if value, ok := selector.RequiresExactMatch(key); ok {
			return key + "=" + value
		}
	}
	return ""
}

func (c *Cache) informerOf(list client.ObjectList) (informer, error) {
	gvk, err := apiutil.GVKForObject(list, c.Scheme)
	if err != nil {
		return informer{}, fmt.Errorf("finding the kind of %T: %w", list, err)
	}
	gvk.Kind = strings.TrimSuffix(gvk.Kind, "List")
	return informer{gvk, formOf(list)}, nil
}

// index adds the index to an informer, unless it has it. Nothing else may read the indexers of one that runs without a lock, as
// controller-runtime does for selectors of several fields.
func (c *Cache) index(ctx context.Context, of informer) error {
	if _, ok := c.indexed.Load(of); ok {
		return nil
	}
	c.adding.Lock()
	defer c.adding.Unlock()
	if _, ok := c.indexed.Load(of); ok {
		return nil
	}
	obj, err := c.object(of)
	if err != nil {
		return err
	}
	if err := c.IndexField(ctx, obj, Field, c.values); err != nil {
		return fmt.Errorf("adding an index of labels for %s: %w", of.Kind, err)
	}
	c.indexed.Store(of, nil)
	return nil
}

// values are those of an object.
func (c *Cache) values(obj client.Object) []string {
	var values []string
	for key, value := range obj.GetLabels() {
		for _, indexed := range c.Keys {
			if key == indexed {
				values = append(values, key+"="+value)
			}
		}
	}
	return values
}

const (
	formTyped        = "typed"
	formUnstructured = "unstructured"
	formMetadata     = "metadata"
)

func formOf(obj runtime.Object) string {
	switch obj.(type) {
	case runtime.Unstructured:
		return formUnstructured
	case *metav1.PartialObjectMetadata, *metav1.PartialObjectMetadataList:
		return formMetadata
	}
	return formTyped
}

// object is one for which a cache has this informer.
func (c *Cache) object(of informer) (client.Object, error) {
	switch of.form {
	case formUnstructured:
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(of.GroupVersionKind)
		return u, nil
	case formMetadata:
		m := &metav1.PartialObjectMetadata{}
		m.SetGroupVersionKind(of.GroupVersionKind)
		return m, nil
	}
	typed, err := c.Scheme.New(of.GroupVersionKind)
	if err != nil {
		return nil, fmt.Errorf("making a %s: %w", of.Kind, err)
	}
	obj, ok := typed.(client.Object)
	if !ok {
		return nil, fmt.Errorf("%s is no object", of.Kind)
	}
	return obj, nil
}
