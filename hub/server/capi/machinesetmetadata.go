package capi

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/labels/format"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/hub/util/ssa"
)

// Field owners of the MachineSet controller: of the objects that it makes, and of their labels and annotations.
const (
	machineSetOwner         = "capi-machineset"
	machineSetMetadataOwner = "capi-machineset-metadata"
)

// metadataClient makes one request of two. The MachineSet controller applies a bootstrap configuration or an infrastructure machine, takes
// the labels and annotations from its managed fields, and applies, in the next reconcile, those of the MachineSet as another field owner,
// which changes nothing but the managed fields. Here the second request makes that other owner the owner already.
type metadataClient struct{ ssa.Client }

// Patch implements client.Writer.
func (c metadataClient) Patch(ctx context.Context, object client.Object, patch client.Patch, opts ...client.PatchOption) error {
	made, ok := object.(*unstructured.Unstructured)
	if !ok || !dropsOwnership(made, patch) {
		return c.Client.Patch(ctx, object, patch, opts...)
	}
	wanted := c.metadataOf(ctx, made)
	if wanted == nil {
		return c.Client.Patch(ctx, object, patch, opts...)
	}
	entry, err := ownerOf(wanted)
	if err != nil {
		return err
	}
	made.SetManagedFields(append(made.GetManagedFields(), entry))
	if err := c.Client.Patch(ctx, made, patch, opts...); err != nil {
		return err
	}
	return c.Applied(machineSetMetadataOwner, wanted, made)
}

// dropsOwnership reports whether a patch changes only the managed fields of an object that the MachineSet controller has just made.
func dropsOwnership(object *unstructured.Unstructured, patch client.Patch) bool {
	managed := func(by string) bool {
		return slices.ContainsFunc(object.GetManagedFields(), func(e metav1.ManagedFieldsEntry) bool { return e.Manager == by })
	}
	if patch.Type() != types.MergePatchType || !managed(machineSetOwner) || managed(machineSetMetadataOwner) {
		return false
	}
	data, err := patch.Data(object)
	if err != nil {
		return false
	}
	var changes map[string]map[string]json.RawMessage
	err = json.Unmarshal(data, &changes)
	metadata := changes["metadata"]
	return err == nil && len(changes) == 1 && len(metadata) == 2 && metadata["managedFields"] != nil && metadata["resourceVersion"] != nil
}

// metadataOf is what the MachineSet controller will apply to an object that it has made, as Cluster API 1.14 has it; nil if the object does
// not have all of it, or is not of a MachineSet.
func (c metadataClient) metadataOf(ctx context.Context, object *unstructured.Unstructured) *unstructured.Unstructured {
	owners := object.GetOwnerReferences()
	i := slices.IndexFunc(owners, func(o metav1.OwnerReference) bool {
		return o.APIVersion == clusterv1.GroupVersion.String() && o.Kind == "MachineSet"
	})
	set := &clusterv1.MachineSet{}
	if i < 0 || c.Get(ctx, client.ObjectKey{Namespace: object.GetNamespace(), Name: owners[i].Name}, set) != nil || set.UID != owners[i].UID {
		return nil
	}
	labels, annotations := maps.Clone(set.Spec.Template.Labels), maps.Clone(set.Spec.Template.Annotations)
	if labels == nil {
		labels = map[string]string{}
	}
	if annotations == nil {
		annotations = map[string]string{}
	}
	labels[clusterv1.MachineSetNameLabel] = format.MustFormatValue(set.Name)
	if deployment, ok := set.Labels[clusterv1.MachineDeploymentNameLabel]; ok {
		labels[clusterv1.MachineDeploymentNameLabel] = deployment
	}
	if !hasAll(object.GetLabels(), labels) || !hasAll(object.GetAnnotations(), annotations) {
		return nil
	}
	wanted := &unstructured.Unstructured{}
	wanted.SetGroupVersionKind(object.GroupVersionKind())
	wanted.SetNamespace(object.GetNamespace())
	wanted.SetName(object.GetName())
	wanted.SetLabels(labels)
	wanted.SetAnnotations(annotations)
	return wanted
}

func hasAll(all, some map[string]string) bool {
	for key, value := range some {
		if there, ok := all[key]; !ok || there != value {
			return false
		}
	}
	return true
}

// ownerOf is the entry of managed fields that the API server makes when labels and annotations are applied. An empty map is not owned:
// whoever owns it and does not apply it any more removes it with what others have in it.
func ownerOf(wanted *unstructured.Unstructured) (metav1.ManagedFieldsEntry, error) {
	metadata := map[string]any{}
	for field, keys := range map[string]map[string]string{"f:labels": wanted.GetLabels(), "f:annotations": wanted.GetAnnotations()} {
		paths := map[string]any{}
		for key := range keys {
			paths["f:"+key] = map[string]any{}
		}
		if len(paths) > 0 {
			metadata[field] = paths
		}
	}
	raw, err := json.Marshal(map[string]any{"f:metadata": metadata})
	if err != nil {
		return metav1.ManagedFieldsEntry{}, fmt.Errorf("encoding managed fields: %w", err)
	}
	return metav1.ManagedFieldsEntry{
		Manager: machineSetMetadataOwner, Operation: metav1.ManagedFieldsOperationApply, APIVersion: wanted.GetAPIVersion(),
		Time: new(metav1.Now()), FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(string(raw)),
	}, nil
}
