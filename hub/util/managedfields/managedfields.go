// Package managedfields makes the managed fields of objects small that are kept in memory. It does not decide who manages what.
package managedfields

import (
	"bytes"
	"encoding/json"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// Managers whose entries Cluster API works on, as internal/util/ssa of Cluster API 1.14 has them: what the API server makes of an object
// without entries, what owns Clusters with a topology, and what MachineSets of Cluster API before 1.12 own of what they have made.
const (
	beforeFirstApply = "before-first-apply"
	topology         = "capi-topology"
	machineSets      = "capi-machineset"
	// trimmedManager is the manager of what takes the place of entries.
	trimmedManager = "trimmed"
)

// What an object has after Trim instead of its entries, shared by all. Copies of objects have a copy.
var (
	trimmedEntries = []metav1.ManagedFieldsEntry{{
		Manager: trimmedManager, Operation: metav1.ManagedFieldsOperationUpdate, FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1("{}"),
	}}
	trimmedUnstructured = []any{map[string]any{
		"manager": trimmedManager, "operation": string(metav1.ManagedFieldsOperationUpdate), "fieldsType": "FieldsV1",
		"fieldsV1": map[string]any{},
	}}
)

// Trim replaces the entries of an object, a third of it in memory and more, by a single one that says nothing: objects without any are
// repaired by Cluster API, again and again. Objects whose entries Cluster API is about to rewrite stay whole. It is a cache.TransformFunc
// of client-go, and returns its argument, and never an error.
//
// Of Machines, MachineSets own the labels for good, and Cluster API does not rewrite that.
//
// What is trimmed must not be sent to the API server as an update, nor compared for a patch with what is not: the server would take what is
// left for what the managers own.
func Trim(in any) (any, error) {
	if object, ok := in.(*unstructured.Unstructured); ok {
		trimUnstructured(object)
		return in, nil
	}
	object, err := meta.Accessor(in)
	if err != nil {
		return in, nil //nolint:nilerr // A tombstone, or another thing that is no object, has none.
	}
	_, machine := in.(*clusterv1.Machine)
	entries := object.GetManagedFields()
	for i := range entries {
		manager := entries[i].Manager
		if manager == beforeFirstApply || manager == topology || manager == machineSets && !machine && ownsLabelTyped(entries[i].FieldsV1) {
			return in, nil
		}
	}
	if len(entries) > 0 {
		object.SetManagedFields(trimmedEntries)
	}
	return in, nil
}

func trimUnstructured(object *unstructured.Unstructured) {
	metadata, _ := object.Object["metadata"].(map[string]any)
	entries, _ := metadata["managedFields"].([]any)
	for _, entry := range entries {
		fields, ok := entry.(map[string]any)
		manager := fields["manager"]
		if !ok || manager == beforeFirstApply || manager == topology || manager == machineSets && ownsLabel(fields) {
			return
		}
	}
	if len(entries) > 0 {
		metadata["managedFields"] = trimmedUnstructured
	}
}

// ownsLabel returns whether an entry owns the label by which Cluster API recognizes entries that it has not migrated.
func ownsLabel(entry map[string]any) bool {
	_, owns, _ := unstructured.NestedFieldNoCopy(entry, "fieldsV1", "f:metadata", "f:labels", "f:"+clusterv1.ClusterNameLabel)
	return owns
}

// ownsLabelTyped is ownsLabel for an entry of a typed object, such as an RKEBootstrap, which Cluster API reads from the typed cache.
func ownsLabelTyped(fields *metav1.FieldsV1) bool {
	if fields == nil || !bytes.Contains(fields.GetRawBytes(), []byte("f:"+clusterv1.ClusterNameLabel)) {
		return false
	}
	decoded := map[string]any{}
	return json.Unmarshal(fields.GetRawBytes(), &decoded) == nil && ownsLabel(map[string]any{"fieldsV1": decoded})
}
