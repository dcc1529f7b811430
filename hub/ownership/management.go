package ownership

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// Labels tie what the hub makes for a cluster, its management Cluster first, to the Cluster of provisioning.cattle.io or of Cluster API. They
// are on objects without a namespace, which only the hub and its administrators write.
func Labels(cluster client.ObjectKey) map[string]string {
	return map[string]string{rkev1.OwnerClusterNamespaceLabel: cluster.Namespace, rkev1.OwnerClusterNameLabel: cluster.Name}
}

// Key is the cluster that the labels of an object name; empty where they name none. For a management Cluster, ClusterOf also asks whether the
// cluster names it; Key alone is for finding out what to look at again.
func Key(object client.Object) client.ObjectKey {
	labels := object.GetLabels()
	key := client.ObjectKey{Namespace: labels[rkev1.OwnerClusterNamespaceLabel], Name: labels[rkev1.OwnerClusterNameLabel]}
	if key.Namespace == "" || key.Name == "" {
		return client.ObjectKey{}
	}
	return key
}

// IsOf tells whether the labels of an object name a cluster.
func IsOf(object client.Object, cluster client.ObjectKey) bool {
	return cluster.Name != "" && Key(object) == cluster
}

// ManagementCluster returns the management Cluster that a cluster names, unless that was made for another one. It is for whoever goes from a
// cluster to its management Cluster by the name that is written on the cluster.
func ManagementCluster(ctx context.Context, from client.Reader, cluster client.ObjectKey, name string) (*managementv3.Cluster, *Refusal, error) {
	management := &managementv3.Cluster{}
	err := from.Get(ctx, client.ObjectKey{Name: name}, management)
	if apierrors.IsNotFound(err) {
		return nil, &Refusal{ReasonWaitingForManagementCluster, fmt.Sprintf("Waiting for management Cluster %s of Cluster %s to be created", name, cluster)}, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("reading management Cluster %s: %w", name, err)
	}
	if !IsOf(management, cluster) {
		return nil, &Refusal{ReasonManagementClusterNotOwned, fmt.Sprintf("Management Cluster %s was not made for Cluster %s: its labels %s and %s name another Cluster, or none; "+
			"remove spec.managementClusterName of the RKEControlPlane and the annotation %s, which the hub sets",
			name, cluster, rkev1.OwnerClusterNamespaceLabel, rkev1.OwnerClusterNameLabel, rkev1.ManagementClusterNameAnnotation)}, nil
	}
	return management, nil, nil
}

// OwnedCluster is the cluster of a management Cluster.
type OwnedCluster struct {
	client.ObjectKey
	// Provisioning is nil where the cluster was written for Cluster API.
	Provisioning *provisioningv1.Cluster
	// CAPI and ControlPlane are set where Provisioning is nil.
	CAPI         *clusterv1.Cluster
	ControlPlane *rkev1.RKEControlPlane
}

// Imported tells that the cluster was made elsewhere and is only reached by the hub.
func (c *OwnedCluster) Imported() bool {
	return c.Provisioning != nil && c.Provisioning.Spec.RKEConfig == nil
}

// GroupVersion is that of the kind Cluster which stands for the cluster, and which rights to the cluster are given to.
func (c *OwnedCluster) GroupVersion() schema.GroupVersion {
	if c.Provisioning != nil {
		return provisioningv1.GroupVersion
	}
	return clusterv1.GroupVersion
}

// ClusterOf returns the cluster that a management Cluster was made for, if that names the management Cluster too; nil otherwise. One that was
// left behind, by a cluster that went to another hub for instance, gives nobody a way to a later cluster of the same name, or from that.
func ClusterOf(ctx context.Context, from client.Reader, management *managementv3.Cluster) (*OwnedCluster, error) {
	key := Key(management)
	if key.Name == "" {
		return nil, nil
	}
	cluster := &provisioningv1.Cluster{}
	err := from.Get(ctx, key, cluster)
	if err == nil {
		if cluster.Annotations[rkev1.ManagementClusterNameAnnotation] != management.Name {
			return nil, nil
		}
		return &OwnedCluster{ObjectKey: key, Provisioning: cluster}, nil
	}
	if !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("reading Cluster %s: %w", key, err)
	}
	return plainClusterOf(ctx, from, key, management.Name)
}

// plainClusterOf looks among the clusters that were written for Cluster API.
func plainClusterOf(ctx context.Context, from client.Reader, key client.ObjectKey, management string) (*OwnedCluster, error) {
	cluster := &clusterv1.Cluster{}
	if err := from.Get(ctx, key, cluster); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("reading Cluster %s of Cluster API: %w", key, err)
	}
	controlPlane, _, err := ControlPlane(ctx, from, cluster)
	if err != nil || controlPlane == nil || controlPlane.ManagementName() != management {
		return nil, err
	}
	return &OwnedCluster{ObjectKey: key, CAPI: cluster, ControlPlane: controlPlane}, nil
}
