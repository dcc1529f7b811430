package ssa

import (
	"crypto/sha256"
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// desired is what is to be applied.
type desired struct {
	identity
	fields
	// object is what is set, of a kind that is compared, without copied: the fields of the specification that are copied from what there is.
	object *unstructured.Unstructured
	// copied has nil for those that are not set.
	copied map[string]any
	// digest is that of all but copied.
	digest, copiedDigest [sha256.Size]byte
}

// takeCopied removes fields from the specification, and returns them.
func takeCopied(u *unstructured.Unstructured, names []string) map[string]any {
	spec, _ := u.Object["spec"].(map[string]any)
	copied := map[string]any{}
	for _, name := range names {
		copied[name] = spec[name]
		delete(spec, name)
	}
	return copied
}

// appliedTo reports whether an object has all content that is wanted, of a kind that is compared, and the same fields that are copied.
// What was applied before had the same fields, so that to apply it again would change no value, and remove none.
func (d desired) appliedTo(current client.Object) (bool, error) {
	if d.object == nil {
		return false, nil
	}
	var there map[string]any
	if u, ok := current.(*unstructured.Unstructured); ok {
		there = u.Object
	} else {
		converted, err := runtime.DefaultUnstructuredConverter.ToUnstructured(current)
		if err != nil {
			return false, fmt.Errorf("converting %s: %w", client.ObjectKeyFromObject(current), err)
		}
		there = converted
	}
	for field, value := range d.object.Object {
		if isContent(field) && !contains(there[field], value) {
			return false, nil
		}
	}
	spec, _ := there["spec"].(map[string]any)
	for field, value := range d.copied {
		if !reflect.DeepEqual(spec[field], value) {
			return false, nil
		}
	}
	return true, nil
}

// contains reports whether present has all that is wanted. Lists must be equal.
func contains(present, wanted any) bool {
	some, ok := wanted.(map[string]any)
	all, isMap := present.(map[string]any)
	if !ok || !isMap {
		return reflect.DeepEqual(present, wanted)
	}
	for field, value := range some {
		if there, found := all[field]; !found || !contains(there, value) {
			return false
		}
	}
	return true
}
