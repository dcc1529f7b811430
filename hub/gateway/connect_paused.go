package gateway

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"
)

// unpaused lets no new machine into a Cluster that is paused: it may be on its way to another hub, and what is written here from then on would
// be lost. Machines that are in already keep reporting, and get their connection again. Without a Cluster nothing is paused.
func (g *registrar) unpaused(ctx context.Context, name types.NamespacedName, objects ...metav1.Object) error {
	cluster := &clusterv1.Cluster{}
	if err := g.client.Get(ctx, name, cluster); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("reading the Cluster %s: %w", name, err)
	}
	if ptr.Deref(cluster.Spec.Paused, false) {
		return later(comeAgain, "the Cluster %s is paused and takes no machines until it no longer is", name)
	}
	for _, object := range append([]metav1.Object{cluster}, objects...) {
		if annotations.HasPaused(object) {
			return later(comeAgain, "the Cluster %s or this machine is paused; it is taken in when it no longer is", name)
		}
	}
	return nil
}
