// Package contract finds out how objects of Cluster API providers are read. A reference to such an object counts by group and kind; the
// version comes from the labels of the definition, which say for each contract of Cluster API which versions keep it. The package knows no
// provider by name.
package contract

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/contract"
)

// versions are the contracts that the hub understands, the best one first.
var versions = []string{"v1beta2", "v1beta1"}

// NotInstalledError says that no definition of a kind exists.
type NotInstalledError struct {
	Kind schema.GroupKind
}

func (e *NotInstalledError) Error() string {
	return fmt.Sprintf("the kind %s is not installed here: there is no CustomResourceDefinition %s; install the infrastructure provider that it belongs to, or correct apiVersion and kind",
		e.Kind, DefinitionName(e.Kind))
}

// NotKeptError says that a kind is none of a Cluster API provider's.
type NotKeptError struct {
	Kind schema.GroupKind
}

func (e *NotKeptError) Error() string {
	return fmt.Sprintf("the kind %s is not one of a Cluster API provider: its CustomResourceDefinition %s has neither of the labels %s and %s, which say what versions keep the contract",
		e.Kind, DefinitionName(e.Kind), label(versions[0]), label(versions[1]))
}

// DefinitionName is the name that the definition of a provider's kind must have.
func DefinitionName(kind schema.GroupKind) string {
	return contract.CalculateCRDName(kind.Group, kind.Kind)
}

// APIVersion returns the apiVersion that objects of a provider's kind are read in: of the versions that the definition names for the newest
// contract that the hub understands, the newest. The error is a NotInstalledError or a NotKeptError, or tells why the API did not answer.
func APIVersion(ctx context.Context, c client.Reader, kind schema.GroupKind) (string, error) {
	crd := &metav1.PartialObjectMetadata{}
	crd.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
	err := c.Get(ctx, client.ObjectKey{Name: DefinitionName(kind)}, crd)
	if apierrors.IsNotFound(err) {
		return "", &NotInstalledError{kind}
	}
	if err != nil {
		return "", fmt.Errorf("reading definition of %s: %w", kind, err)
	}
	for _, v := range versions {
		if value := crd.Labels[label(v)]; value != "" {
			newest := slices.MaxFunc(strings.Split(value, "_"), version.CompareKubeAwareVersionStrings)
			return schema.GroupVersion{Group: kind.Group, Version: newest}.String(), nil
		}
	}
	return "", &NotKeptError{kind}
}

func label(contractVersion string) string {
	return clusterv1.GroupVersion.Group + "/" + contractVersion
}
