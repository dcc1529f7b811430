package ssa

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// fields are what an apply sets. What others set beside it is none of its business: agents, the gateway and other controllers write plan
// Secrets all the time.
type fields struct {
	labels, annotations, finalizers []string
	owners                          []types.UID
	// hasContent is whether more is set than the existence of the object and its metadata.
	hasContent bool
}

// setBy returns what an apply of wanted sets.
func setBy(wanted *unstructured.Unstructured) fields {
	f := fields{
		labels:      slices.Sorted(maps.Keys(wanted.GetLabels())),
		annotations: slices.Sorted(maps.Keys(wanted.GetAnnotations())),
		finalizers:  wanted.GetFinalizers(),
	}
	for _, owner := range wanted.GetOwnerReferences() {
		f.owners = append(f.owners, owner.UID)
	}
	for field := range wanted.Object {
		f.hasContent = f.hasContent || isContent(field)
	}
	return f
}

// isContent reports whether a field of an object is neither its kind nor its metadata.
func isContent(field string) bool {
	return !slices.Contains([]string{"apiVersion", "kind", "metadata", "type"}, field)
}

// contentVersionOf changes with what is set beside the metadata. The generation stands for the spec, the resource version for the content
// of kinds without one.
func (f fields) contentVersionOf(obj client.Object) string {
	switch {
	case !f.hasContent:
		return ""
	case obj.GetGeneration() == 0:
		return obj.GetResourceVersion()
	default:
		return "generation " + strconv.FormatInt(obj.GetGeneration(), 10)
	}
}

// fingerprint changes with each of the fields of the metadata.
func (f fields) fingerprint(obj client.Object) ([sha256.Size]byte, error) {
	var owners []metav1.OwnerReference
	for _, owner := range obj.GetOwnerReferences() {
		if slices.Contains(f.owners, owner.UID) {
			owners = append(owners, owner)
		}
	}
	var finalizers []string
	for _, finalizer := range obj.GetFinalizers() {
		if slices.Contains(f.finalizers, finalizer) {
			finalizers = append(finalizers, finalizer)
		}
	}
	return digest([]any{obj.GetUID(), of(obj.GetLabels(), f.labels), of(obj.GetAnnotations(), f.annotations), owners, finalizers})
}

// of returns the values of some keys.
func of(all map[string]string, keys []string) map[string]string {
	some := make(map[string]string, len(keys))
	for _, key := range keys {
		if value, found := all[key]; found {
			some[key] = value
		}
	}
	return some
}

// wantedDigest is that of what is set. The UID only says that an object exists already, and is in the fingerprint.
func wantedDigest(wanted *unstructured.Unstructured) ([sha256.Size]byte, error) {
	unstructured.RemoveNestedField(wanted.Object, "metadata", "uid")
	return digest(wanted.Object)
}

func digest(content any) ([sha256.Size]byte, error) {
	raw, err := json.Marshal(content)
	if err != nil {
		return [sha256.Size]byte{}, fmt.Errorf("encoding an object: %w", err)
	}
	return sha256.Sum256(raw), nil
}
