package crds

import (
	"context"
	"encoding/json"
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/version"
)

// versionAnnotation is the version of the hub that has applied the definition, the first that has it as it is: a hub that finds its own
// definition writes nothing. A hub of an older version does not replace it.
const versionAnnotation = "rke.cattle.io/definition-version"

// released is the version of a release, or of a build between that and the next one; nil for builds that belong to none.
func released(text string) *version.Version {
	v, err := version.ParseGeneric(text)
	if err != nil || v.LessThan(version.MajorMinor(0, 1)) {
		return nil
	}
	return v
}

// newer reports whether a definition was applied by a hub of a newer version than own.
func newer(have *apiextensionsv1.CustomResourceDefinition, own string) bool {
	if have == nil {
		return false
	}
	theirs, ours := released(have.Annotations[versionAnnotation]), released(own)
	return theirs != nil && ours != nil && ours.LessThan(theirs)
}

// keep leaves a definition as a newer hub has applied it: a replica that restarts while replicas are replaced must not have the API server
// drop the fields that the new ones have written. Only how the API server reaches the conversion webhook is as this hub wants it, since
// that does not depend on the version.
func keep(
	ctx context.Context, client apiextensions.CustomResourceDefinitionInterface, have, want *apiextensionsv1.CustomResourceDefinition,
) error {
	from, to := conversionOf(have), conversionOf(want)
	if from != nil && to != nil && !equality.Semantic.DeepDerivative(to, from) {
		raw, err := json.Marshal(map[string]any{"spec": map[string]any{"conversion": map[string]any{"webhook": map[string]any{
			"clientConfig": map[string]any{"url": to.URL, "service": to.Service, "caBundle": to.CABundle}}}}})
		if err != nil {
			return fmt.Errorf("encoding the conversion of %s: %w", have.Name, err)
		}
		if _, err := client.Patch(ctx, have.Name, types.MergePatchType, raw, metav1.PatchOptions{FieldManager: fieldOwner}); err != nil {
			return fmt.Errorf("updating the conversion of %s: %w", have.Name, err)
		}
	}
	if whyNotEstablished(have) == "" {
		return nil
	}
	return waitEstablished(ctx, client, have.Name)
}

// conversionOf is how the API server reaches the webhook that converts a kind; nil without one.
func conversionOf(crd *apiextensionsv1.CustomResourceDefinition) *apiextensionsv1.WebhookClientConfig {
	if crd.Spec.Conversion == nil || crd.Spec.Conversion.Webhook == nil {
		return nil
	}
	return crd.Spec.Conversion.Webhook.ClientConfig
}
