// Package plane holds the tests of how the control plane treats machines of a foreign infrastructure: plain objects of Cluster API, without
// a provisioning Cluster, whose infrastructure and agents the tests play.
package plane

import (
	"context"
	"errors"
	"os"
	"slices"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/hub/testenv"
)

// infraContract is the label by which a definition says that it keeps the contract v1beta2, and in which of its versions.
const infraContract = "cluster.x-k8s.io/v1beta2"

// env is the hub that all tests share.
var env *testenv.Env

func TestMain(m *testing.M) { os.Exit(testenv.Main(m, testenv.Options{}, &env, installInfrastructure)) }

func installInfrastructure(context.Context) error {
	return errors.Join(define("PlaneCluster", "planeclusters"), define("PlaneMachine", "planemachines"))
}

// define installs a kind of infrastructure that keeps the contract v1beta2, as far as its definition does.
func define(kind, plural string) error {
	crd := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: plural + "." + infraGroup, Labels: map[string]string{infraContract: "v1"}},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: infraGroup, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Kind: kind, ListKind: kind + "List", Plural: plural},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true, Subresources: &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}},
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", XPreserveUnknownFields: ptr.To(true),
				}},
			}},
		},
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := env.Client.Create(ctx, crd); err != nil {
		return err
	}
	for {
		if err := env.Client.Get(ctx, client.ObjectKeyFromObject(crd), crd); err != nil {
			return err
		}
		if slices.ContainsFunc(crd.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
			return c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue
		}) {
			return nil
		}
		time.Sleep(20 * time.Millisecond)
	}
}
