// Package capicontract returns the API version to read objects of Cluster API providers in. A reference to such an object has only group
// and kind; the version comes from the labels of the CustomResourceDefinition, which name the versions for each contract of Cluster API.
// The package knows no provider by name.
package capicontract

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/contract"

	"github.com/drover-dev/drover/hub/util/objects"
)

// InfrastructureGroup is the API group of most infrastructure providers.
const InfrastructureGroup = "infrastructure.cluster.x-k8s.io"

// versions are the contracts that the hub supports, the newest first.
var versions = []string{"v1beta2", "v1beta1"}

// NotInstalledError is returned for a kind without a CustomResourceDefinition.
type NotInstalledError struct {
	Kind schema.GroupKind
}

func (e *NotInstalledError) Error() string {
	return fmt.Sprintf("kind %s is not installed: CustomResourceDefinition %s does not exist; "+
		"install its infrastructure provider, or correct apiVersion and kind",
		e.Kind, DefinitionName(e.Kind))
}

// NotSupportedError is returned for a kind that does not belong to a Cluster API provider, or to one of an older contract.
type NotSupportedError struct {
	Kind schema.GroupKind
}

func (e *NotSupportedError) Error() string {
	return fmt.Sprintf("kind %s is not supported: CustomResourceDefinition %s has neither of the labels %s and %s, "+
		"with which a Cluster API provider names the versions of the contract",
		e.Kind, DefinitionName(e.Kind), label(versions[0]), label(versions[1]))
}

// DefinitionName is the name of the CustomResourceDefinition of a kind, by the rule of Cluster API.
func DefinitionName(kind schema.GroupKind) string {
	return contract.CalculateCRDName(kind.Group, kind.Kind)
}

// APIVersion returns the apiVersion to read objects of a provider's kind in: the newest version of the newest contract that the hub
// supports. The error is a *NotInstalledError, a *NotSupportedError, or that of the request.
func APIVersion(ctx context.Context, c client.Reader, kind schema.GroupKind) (string, error) {
	crd := &metav1.PartialObjectMetadata{}
	crd.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
	found, err := objects.Get(ctx, c, client.ObjectKey{Name: DefinitionName(kind)}, crd)
	if err != nil {
		return "", err
	}
	if !found {
		return "", &NotInstalledError{kind}
	}
	for _, v := range versions {
		if value := crd.Labels[label(v)]; value != "" {
			newest := slices.MaxFunc(strings.Split(value, "_"), version.CompareKubeAwareVersionStrings)
			return schema.GroupVersion{Group: kind.Group, Version: newest}.String(), nil
		}
	}
	return "", &NotSupportedError{kind}
}

func label(contractVersion string) string {
	return clusterv1.GroupVersion.Group + "/" + contractVersion
}
