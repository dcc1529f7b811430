// Package ssa writes objects by server-side apply, so that each controller owns the fields that it sets and no others. It does not decide
// what is written.
package ssa

import (
	"context"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// Apply makes the API server's object have what obj sets, takes over fields that another writer owned, and fills obj with the result. What
// obj does not set stays, unless the same owner set it before: then it is removed. The status is not written. An object with a UID is
// updated only if the stored one has that UID, and never created.
func Apply(ctx context.Context, c client.Client, owner client.FieldOwner, obj client.Object) error {
	u, err := toUnstructured(c.Scheme(), obj)
	if err != nil {
		return err
	}
	if err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), owner, client.ForceOwnership); err != nil {
		return fmt.Errorf("applying %s %s: %w", u.GetKind(), client.ObjectKeyFromObject(obj), err)
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, obj); err != nil {
		return fmt.Errorf("reading %s %s: %w", u.GetKind(), client.ObjectKeyFromObject(obj), err)
	}
	return nil
}

// toUnstructured keeps what is applied: kind, metadata, spec and data.
func toUnstructured(scheme *runtime.Scheme, obj client.Object) (*unstructured.Unstructured, error) {
	gvk, err := apiutil.GVKForObject(obj, scheme)
	if err != nil {
		return nil, fmt.Errorf("finding the kind of %T: %w", obj, err)
	}
	if u, ok := obj.(*unstructured.Unstructured); ok {
		return onlyApplied(u.DeepCopy()), nil
	}
	raw, err := json.Marshal(obj)
	if err != nil {
		return nil, fmt.Errorf("encoding %s: %w", gvk.Kind, err)
	}
	u := &unstructured.Unstructured{}
	if err := utiljson.Unmarshal(raw, &u.Object); err != nil {
		return nil, fmt.Errorf("decoding %s: %w", gvk.Kind, err)
	}
	u.SetGroupVersionKind(gvk)
	return onlyApplied(u), nil
}

// onlyApplied removes from an object what is not applied.
func onlyApplied(u *unstructured.Unstructured) *unstructured.Unstructured {
	delete(u.Object, "status")
	for _, field := range []string{"creationTimestamp", "managedFields", "resourceVersion", "generation"} {
		unstructured.RemoveNestedField(u.Object, "metadata", field)
	}
	return u
}
