package clusters

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// infraGroup is where infrastructure providers have their kinds.
	infraGroup = "infrastructure.cluster.x-k8s.io"
	// infraContract is the label by which a definition says that it keeps the contract v1beta2, and in which of its versions.
	infraContract = "cluster.x-k8s.io/v1beta2"
)

// define installs a kind of infrastructure that follows the contract v1beta2 and that the hub does not know.
func define(ctx context.Context, kind string) error { return defineIn(ctx, infraGroup, kind) }

// defineIn installs such a kind of any provider.
func defineIn(ctx context.Context, group, kind string) error {
	singular := strings.ToLower(kind)
	crd := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: singular + "s." + group, Labels: map[string]string{infraContract: "v1"}},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: group, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Kind: kind, ListKind: kind + "List", Plural: singular + "s", Singular: singular},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Subresources: &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}},
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", XPreserveUnknownFields: ptr.To(true),
				}},
			}},
		},
	}
	if err := env.Client.Create(ctx, crd); err != nil {
		return err
	}
	return established(ctx, crd.Name)
}

// established waits until a definition is served, and the tests' client knows its kind.
func established(ctx context.Context, name string) error {
	err := errors.New("it is not established")
	for deadline := time.Now().Add(3 * time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := env.Client.Get(ctx, client.ObjectKey{Name: name}, crd); err != nil {
			return err
		}
		if !slices.ContainsFunc(crd.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
			return c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue
		}) {
			continue
		}
		// The API server serves it a moment after it says so.
		if err = listAll(ctx, crd); err == nil {
			return nil
		}
	}
	return fmt.Errorf("the definition %s is not served: %w", name, err)
}

// listAll lists the objects of a definition in each of its versions.
func listAll(ctx context.Context, crd *apiextensionsv1.CustomResourceDefinition) error {
	var all []error
	for _, version := range crd.Spec.Versions {
		if !version.Served {
			continue
		}
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(schema.GroupVersionKind{Group: crd.Spec.Group, Version: version.Name, Kind: crd.Spec.Names.ListKind})
		all = append(all, env.Client.List(ctx, list))
	}
	return errors.Join(all...)
}
