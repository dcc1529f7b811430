// Package objects has what every controller does with objects of the Kubernetes API: reading one that may not exist, deleting one that may
// be gone, and enqueueing a list.
package objects

import (
	"context"
	"fmt"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Get reads an object and returns whether it exists. An error names kind and key.
func Get(ctx context.Context, from client.Reader, key client.ObjectKey, into client.Object, opts ...client.GetOption) (bool, error) {
	err := from.Get(ctx, key, into, opts...)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading %s %s: %w", KindOf(into), name(key), err)
	}
	return true, nil
}

// EnsureNamespace creates a namespace unless it exists. Where it exists, it is no error either that it could not be created, for instance
// since a right is missing, or since the database has no room. c must not read from a cache.
func EnsureNamespace(ctx context.Context, c client.Client, namespace string) error {
	err := c.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	if err == nil || apierrors.IsAlreadyExists(err) {
		return nil
	}
	if found, _ := Get(ctx, c, client.ObjectKey{Name: namespace}, &corev1.Namespace{}); found {
		return nil
	}
	return fmt.Errorf("creating namespace %s: %w", namespace, err)
}

// Delete deletes an object; one that does not exist is no error.
func Delete(ctx context.Context, c client.Writer, object client.Object, opts ...client.DeleteOption) error {
	if err := c.Delete(ctx, object, opts...); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting %s %s: %w", KindOf(object), name(client.ObjectKeyFromObject(object)), err)
	}
	return nil
}

// List reads the objects that options select, and returns a request for each; none, and a line in the log, where that fails. It is for
// functions that map one object to others, which have nowhere to return an error to.
func List(ctx context.Context, from client.Reader, list client.ObjectList, opts ...client.ListOption) []ctrl.Request {
	var requests []ctrl.Request
	err := from.List(ctx, list, opts...)
	if err == nil {
		err = meta.EachListItem(list, func(o runtime.Object) error {
			requests = append(requests, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(o.(client.Object))})
			return nil
		})
	}
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Failed to list objects", "list", reflect.TypeOf(list).Elem().Name())
	}
	return requests
}

// KindOf is the kind that the object says, or the name of its type.
func KindOf(object client.Object) string {
	if kind := object.GetObjectKind().GroupVersionKind().Kind; kind != "" {
		return kind
	}
	return reflect.TypeOf(object).Elem().Name()
}

// name is the key as people write it.
func name(key client.ObjectKey) string {
	if key.Namespace == "" {
		return key.Name
	}
	return key.String()
}
