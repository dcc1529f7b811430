package rkecontrolplane

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/plan/render"
	"github.com/drover-dev/drover/hub/util/operations"
)

// Indexes, so that a change of an object costs nothing for each cluster or Secret that has nothing to do with it.
const (
	// indexReferences is of RKEControlPlanes, by what their specifications refer to in their own namespace.
	indexReferences = "references"
	// indexBootstrapSecrets is of Secrets, by the clusters that have them from their start.
	indexBootstrapSecrets = "bootstrapSecretOf"
)

func addIndexes(ctx context.Context, indexer client.FieldIndexer) error {
	err := indexer.IndexField(ctx, &rkev1.RKEControlPlane{}, indexReferences, func(o client.Object) []string {
		return referenceKeys(o.(*rkev1.RKEControlPlane))
	})
	if err != nil {
		return fmt.Errorf("indexing RKEControlPlanes by %s: %w", indexReferences, err)
	}
	if err := indexer.IndexField(ctx, &corev1.Secret{}, indexBootstrapSecrets, bootstrapSecretOf); err != nil {
		return fmt.Errorf("indexing Secrets by %s: %w", indexBootstrapSecrets, err)
	}
	return nil
}

// operationsOf are the operations of a cluster, as the cache has them, by the index that the manager's has.
func (r *Reconciler) operationsOf(ctx context.Context, cluster client.ObjectKey) ([]operationv1.Operation, error) {
	if r.manager == nil {
		return operations.Of(ctx, r.Client, cluster)
	}
	return operations.Of(ctx, r.Client, cluster, operations.Indexed(cluster))
}

// referenceKeys are the keys of what the specification of an RKEControlPlane refers to in its own namespace. A Secret of another namespace
// names the clusters that may have it.
func referenceKeys(controlPlane *rkev1.RKEControlPlane) (keys []string) {
	for _, ref := range render.References(controlPlane.Spec) {
		if ref.Namespace == "" || ref.Namespace == controlPlane.Namespace {
			keys = append(keys, referenceKey(ref.Kind, ref.Name))
		}
	}
	return keys
}

func referenceKey(kind, name string) string { return kind + "/" + name }
