package kubeconfig

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/secret"

	"github.com/drover-dev/drover/hub/util/ownership"
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
	// The name is all that Cluster API finds it by.
	cluster := &clusterv1.Cluster{}
	key.Name = strings.TrimSuffix(key.Name, "-"+string(secret.Kubeconfig))
	if err := r.Reader.Get(ctx, key, cluster); err != nil {
		return fmt.Errorf("reading Cluster %s: %w", key, err)
	}
	refusal, err := Check(ctx, r.Reader, found, cluster)
	if err == nil && refusal != "" {
		err = errors.New(refusal)
	}
	return err
}

// List implements client.Reader.
func (checkedReader) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	return fmt.Errorf("listing %T: this reader is for single kubeconfig Secrets", list)
}

// Check returns why a kubeconfig Secret is refused for the Cluster that it has the name of; empty if it is not. One without a kubeconfig is
// not, and one of another cluster is. Owners are read from a reader.
func Check(ctx context.Context, from client.Reader, found *corev1.Secret, cluster *clusterv1.Cluster) (refusal string, _ error) {
	if foreign, err := ownership.KubeconfigOfCluster(ctx, from, found, cluster); err != nil || foreign != nil {
		if foreign != nil {
			refusal = foreign.Message
		}
		return refusal, err
	}
	raw, ok := found.Data[secret.KubeconfigDataName]
	if !ok {
		return "", nil
	}
	if _, err := RESTConfig(raw); err != nil {
		return fmt.Sprintf("kubeconfig Secret %s: %v", found.Name, err), nil
	}
	return "", nil
}
