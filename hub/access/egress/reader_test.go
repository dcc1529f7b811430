package egress

import (
	"context"
	"net/http/httptest"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// deletedSoon is an API server whose Cluster is deleted, and forgotten, while its kubeconfig Secret is read.
type deletedSoon struct {
	client.Reader
	clusters *Clusters
}

func (d deletedSoon) Get(ctx context.Context, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
	if _, ok := object.(*clusterv1.Cluster); ok && d.clusters.Config(key) != nil {
		return apierrors.NewNotFound(clusterv1.GroupVersion.WithResource("clusters").GroupResource(), key.Name)
	}
	return d.Reader.Get(ctx, key, object, opts...)
}

// TestDeletedCluster: nothing is kept of a Cluster that was deleted while its kubeconfig Secret was read.
func TestDeletedCluster(t *testing.T) {
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	clusters := New()
	key := client.ObjectKey{Namespace: "ns", Name: "demo"}
	reader := clusters.Reader(deletedSoon{secretOf(t, server), clusters})
	err := reader.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "demo-kubeconfig"}, &corev1.Secret{})
	if !apierrors.IsNotFound(err) || clusters.Config(key) != nil {
		t.Errorf("got %v, and the cluster is reached by %v", err, clusters.Config(key))
	}
}
