package dryrun

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/jsonmergepatch"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/plan/preview"
)

// readManifest finds the Cluster, or else the RKEControlPlane, among the documents of a manifest. It says which others are not looked at.
func readManifest(raw []byte) (*unstructured.Unstructured, []string, error) {
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(raw), 4096)
	var found *unstructured.Unstructured
	var warnings []string
	for {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(&object.Object)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, nil, fmt.Errorf("the manifest is neither YAML nor JSON: %w", err)
		}
		switch {
		case len(object.Object) == 0:
		case !isCluster(object):
			warnings = append(warnings, fmt.Sprintf("%s %s of the manifest is not looked at", object.GetKind(), object.GetName()))
		case found != nil:
			return nil, nil, fmt.Errorf("the manifest has two clusters, %s %s and %s %s: give one at a time", found.GetKind(), found.GetName(),
				object.GetKind(), object.GetName())
		default:
			found = object
		}
	}
	switch {
	case found == nil:
		return nil, nil, fmt.Errorf("the manifest has no Cluster of %s and no RKEControlPlane of %s",
			provisioningv1.GroupVersion, rkev1.GroupVersion)
	case found.GetNamespace() == "":
		return nil, nil, errors.New("metadata.namespace of the manifest is empty: write the namespace of the cluster there")
	case found.GetName() == "":
		return nil, nil, errors.New("metadata.name of the manifest is empty: write the name of the cluster there")
	}
	return found, warnings, nil
}

func isCluster(object *unstructured.Unstructured) bool {
	switch object.GetAPIVersion() {
	case provisioningv1.GroupVersion.String():
		return object.GetKind() == "Cluster"
	case rkev1.GroupVersion.String():
		return object.GetKind() == "RKEControlPlane"
	}
	return false
}

// editedControlPlane is for clusters that were written for Cluster API.
func (o Options) editedControlPlane(ctx context.Context, object *unstructured.Unstructured, warnings []string) (*preview.Report, error) {
	key := client.ObjectKeyFromObject(object)
	before, after := &target{controlPlane: &rkev1.RKEControlPlane{}}, &target{controlPlane: &rkev1.RKEControlPlane{}}
	found, err := o.get(ctx, key, before.controlPlane)
	if err != nil {
		return nil, err
	}
	if !found {
		before = nil
	} else if owner := metav1.GetControllerOf(before.controlPlane); owner != nil && owner.APIVersion == provisioningv1.GroupVersion.String() {
		return nil, fmt.Errorf("RKEControlPlane %s is made from Cluster %s, which would take the change back: edit that", key, owner.Name)
	}
	if err := o.apply(ctx, object, after.controlPlane); err != nil {
		return nil, err
	}
	return o.diff(ctx, key, before, after, warnings)
}

// strict refuses fields that the kind does not have, which a user may have misspelt.
const strict = client.FieldValidation(metav1.FieldValidationStrict)

// apply has the API server tell what an object would be after "kubectl apply" of a manifest, and whether it would take it.
func (o Options) apply(ctx context.Context, manifest *unstructured.Unstructured, into client.Object) error {
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(manifest.GroupVersionKind())
	key := client.ObjectKeyFromObject(manifest)
	found, err := o.get(ctx, key, live)
	if err != nil {
		return err
	}
	result := clean(manifest)
	switch last := live.GetAnnotations()[corev1.LastAppliedConfigAnnotation]; {
	case !found:
		err = o.Client.Create(ctx, result, client.DryRunAll, strict)
	case last != "":
		result, err = o.merge(ctx, live, result, []byte(last))
	default:
		// Nobody knows what was applied before, so that the manifest has to be the whole object, as an editor shows it.
		result = replaced(live, result)
		err = o.Client.Update(ctx, result, client.DryRunAll, strict)
	}
	if apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) {
		return fmt.Errorf("the API server does not take the manifest: %w", err)
	}
	if err != nil {
		return fmt.Errorf("asking the API server about the manifest: %w", err)
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(result.Object, into); err != nil {
		return fmt.Errorf("reading what the API server makes of the manifest: %w", err)
	}
	return nil
}

// clean is a manifest without what only the API server and the hub write.
func clean(manifest *unstructured.Unstructured) *unstructured.Unstructured {
	out := manifest.DeepCopy()
	delete(out.Object, "status")
	for _, field := range []string{"resourceVersion", "uid", "generation", "creationTimestamp", "managedFields", "selfLink"} {
		unstructured.RemoveNestedField(out.Object, "metadata", field)
	}
	return out
}

// merge changes what the manifest changes since it was applied last.
func (o Options) merge(ctx context.Context, live, manifest *unstructured.Unstructured, last []byte) (*unstructured.Unstructured, error) {
	current, err := json.Marshal(live.Object)
	if err != nil {
		return nil, fmt.Errorf("encoding the object: %w", err)
	}
	modified, err := json.Marshal(manifest.Object)
	if err != nil {
		return nil, fmt.Errorf("encoding the manifest: %w", err)
	}
	patch, err := jsonmergepatch.CreateThreeWayJSONMergePatch(last, modified, current)
	if err != nil {
		return nil, fmt.Errorf("comparing the manifest with what was applied last: %w", err)
	}
	return live, o.Client.Patch(ctx, live, client.RawPatch(types.MergePatchType, patch), client.DryRunAll, strict)
}

// replaced is the live object with the manifest's spec. Labels and annotations that others have set stay.
func replaced(live, manifest *unstructured.Unstructured) *unstructured.Unstructured {
	out := live.DeepCopy()
	out.Object["spec"] = manifest.Object["spec"]
	out.SetLabels(merge(live.GetLabels(), manifest.GetLabels()))
	out.SetAnnotations(merge(live.GetAnnotations(), manifest.GetAnnotations()))
	return out
}
