package capi

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/hub/util/limitedyaml"
)

// maxResources is how many bytes a text of a ClusterResourceSet may have, with all aliases written out.
const maxResources = 8 << 20

// resourcesClient is the client of the controller of ClusterResourceSets, which decodes what users have written into Secrets and
// ConfigMaps.
type resourcesClient struct{ client.Client }

// Get implements client.Reader.
func (c resourcesClient) Get(ctx context.Context, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
	if err := c.Client.Get(ctx, key, object, opts...); err != nil {
		return err
	}
	var texts [][]byte
	switch object := object.(type) {
	case *corev1.Secret:
		for _, text := range object.Data {
			texts = append(texts, text)
		}
	case *corev1.ConfigMap:
		for _, text := range object.Data {
			texts = append(texts, []byte(text))
		}
	}
	for _, text := range texts {
		if err := limitedyaml.Check(text, maxResources); err != nil {
			return fmt.Errorf("reading the resources in %T %s: %w", object, key, err)
		}
	}
	return nil
}
