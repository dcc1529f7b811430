package ownership

import (
	"context"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/util/cause"
	"github.com/drover-dev/drover/hub/util/objects"
)

// Labels are the labels of cluster-scoped objects that the hub creates for a Cluster of provisioning.cattle.io or of Cluster API. Only the
// hub and its administrators write such objects.
func Labels(cluster client.ObjectKey) map[string]string {
	return map[string]string{rkev1.OwnerClusterNamespaceLabel: cluster.Namespace, rkev1.OwnerClusterNameLabel: cluster.Name}
}

// Key is the cluster that the labels of an object name; empty if they name none. It is for mapping events to requests: ClusterOf also
// checks whether the cluster names the management Cluster.
func Key(object client.Object) client.ObjectKey {
	labels := object.GetLabels()
	key := client.ObjectKey{Namespace: labels[rkev1.OwnerClusterNamespaceLabel], Name: labels[rkev1.OwnerClusterNameLabel]}
	if key.Namespace == "" || key.Name == "" {
		return client.ObjectKey{}
	}
	return key
}

// IsOf reports whether the labels of an object name a cluster.
func IsOf(object client.Object, cluster client.ObjectKey) bool {
	return cluster.Name != "" && Key(object) == cluster
}

// ManagementCluster returns the management Cluster of the given name, unless it was created for another cluster. name is read from an
// annotation or the spec of the cluster.
func ManagementCluster(
	ctx context.Context, from client.Reader, cluster client.ObjectKey, name string,
) (*managementv3.Cluster, *cause.Cause, error) {
	management := &managementv3.Cluster{}
	found, err := objects.Get(ctx, from, client.ObjectKey{Name: name}, management)
	if err != nil {
		return nil, nil, err
	}
	if !found {
		return nil, cause.New(ReasonWaitingForManagementCluster,
			"Waiting for management Cluster %s of Cluster %s to be created", name, cluster), nil
	}
	if !IsOf(management, cluster) {
		return nil, cause.New(ReasonManagementClusterNotOwned, "Management Cluster %s was not created for Cluster %s: its labels "+
			"%s and %s name another Cluster, or none; "+
			"remove spec.managementClusterName of the RKEControlPlane and the annotation %s, which the hub sets",
			name, cluster, rkev1.OwnerClusterNamespaceLabel, rkev1.OwnerClusterNameLabel, rkev1.ManagementClusterNameAnnotation), nil
	}
	return management, nil, nil
}

// OwnedCluster is the cluster of a management Cluster.
type OwnedCluster struct {
	client.ObjectKey
	// Provisioning is nil for a cluster that was written for Cluster API.
	Provisioning *provisioningv1.Cluster
	// ControlPlane is set if Provisioning is nil.
	ControlPlane *rkev1.RKEControlPlane
}

// Imported returns whether the cluster has no rkeConfig: the hub did not create it and reaches it through its agent.
func (c *OwnedCluster) Imported() bool {
	return c.Provisioning != nil && c.Provisioning.Spec.RKEConfig == nil
}

// GroupVersion is that of the Cluster which users have rights to.
func (c *OwnedCluster) GroupVersion() schema.GroupVersion {
	if c.Provisioning != nil {
		return provisioningv1.GroupVersion
	}
	return clusterv1.GroupVersion
}

// ClusterOf returns the cluster that a management Cluster was created for, if that names the management Cluster too; nil otherwise. So a
// management Cluster that was left behind, by a cluster that was moved to another hub for instance, gives no access to a later cluster of
// the same name.
func ClusterOf(ctx context.Context, from client.Reader, management *managementv3.Cluster) (*OwnedCluster, error) {
	key := Key(management)
	if key.Name == "" {
		return nil, nil
	}
	cluster := &provisioningv1.Cluster{}
	found, err := objects.Get(ctx, from, key, cluster)
	switch {
	case err != nil:
		return nil, err
	case found && cluster.Annotations[rkev1.ManagementClusterNameAnnotation] == management.Name:
		return &OwnedCluster{ObjectKey: key, Provisioning: cluster}, nil
	}
	return capiClusterOf(ctx, from, key, management.Name)
}

// OfProvisioningCluster reports whether an object has a Cluster of provisioning.cattle.io with this name as an owner. It goes by the name:
// the UID changes when a cluster is moved or restored.
func OfProvisioningCluster(o client.Object, name string) bool {
	return hasOwner(o, provisioningv1.GroupVersion.Group, name)
}

// OfClusterNamed reports whether an object has a Cluster of Cluster API with this name as an owner.
func OfClusterNamed(o client.Object, name string) bool {
	return hasOwner(o, clusterv1.GroupVersion.Group, name)
}

func hasOwner(o client.Object, group, name string) bool {
	return slices.ContainsFunc(o.GetOwnerReferences(), func(ref metav1.OwnerReference) bool {
		of, _, _ := strings.Cut(ref.APIVersion, "/")
		return of == group && ref.Kind == "Cluster" && ref.Name == name
	})
}

// capiClusterOf returns a cluster that was written for Cluster API. A Cluster of provisioning.cattle.io with its name that has not made it
// has no part in it.
func capiClusterOf(ctx context.Context, from client.Reader, key client.ObjectKey, management string) (*OwnedCluster, error) {
	cluster := &clusterv1.Cluster{}
	if found, err := objects.Get(ctx, from, key, cluster); err != nil || !found || OfProvisioningCluster(cluster, key.Name) {
		return nil, err
	}
	controlPlane, _, err := ControlPlane(ctx, from, cluster)
	if err != nil || controlPlane == nil || controlPlane.ManagementName() != management {
		return nil, err
	}
	return &OwnedCluster{ObjectKey: key, ControlPlane: controlPlane}, nil
}
