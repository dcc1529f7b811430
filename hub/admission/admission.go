// Package admission installs the rules that need to know who writes an object. All rules that can do without are in the definitions of the
// kinds themselves. It holds policies only, which the API server carries out; there is no webhook that could be away.
package admission

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

//go:embed policies.yaml
var policies []byte

const fieldOwner = client.FieldOwner("drover-admission")

// Install applies the policies. Applying what is there already changes nothing.
func Install(ctx context.Context, c client.Client) error {
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(policies), 4096)
	for {
		object := &unstructured.Unstructured{}
		if err := decoder.Decode(&object.Object); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("decoding admission policies: %w", err)
		}
		if err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), fieldOwner, client.ForceOwnership); err != nil {
			return fmt.Errorf("installing the %s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
}
