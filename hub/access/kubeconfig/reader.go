package kubeconfig

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sigs.k8s.io/cluster-api/util/secret"
)

// Reader reads kubeconfig Secrets for those who open kubeconfigs in their own way, as Cluster API's cluster cache does: what this package
// refuses cannot be read.
func Reader(reader client.Reader) client.Reader { return checkedReader{reader} }

type checkedReader struct{ client.Reader }

// Get implements client.Reader.
func (r checkedReader) Get(ctx context.Context, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
	if err := r.Reader.Get(ctx, key, object, opts...); err != nil {
		return err
	}
	found, ok := object.(*corev1.Secret)
	if !ok {
		return fmt.Errorf("reading %T %s: this reader is for kubeconfig Secrets only", object, key)
	}
	return Check(found)
}

// List implements client.Reader.
func (checkedReader) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	return fmt.Errorf("listing %T: this reader is for single kubeconfig Secrets", list)
}

// Check says why a kubeconfig Secret is refused. One without a kubeconfig is not.
func Check(found *corev1.Secret) error {
	raw, ok := found.Data[secret.KubeconfigDataName]
	if !ok {
		return nil
	}
	if _, err := RESTConfig(raw); err != nil {
		return fmt.Errorf("kubeconfig Secret %s: %w", found.Name, err)
	}
	return nil
}
