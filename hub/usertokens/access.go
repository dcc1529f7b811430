package usertokens

import (
	"context"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// Review returns a Handler's Allowed that asks the hub's Kubernetes: whoever may get the subresource proxy of a Cluster may reach it. The
// Cluster is that of provisioning.cattle.io, or of Cluster API where there is no such.
func Review(c client.Client) func(context.Context, user.Info, *managementv3.Cluster) (bool, error) {
	return func(ctx context.Context, u user.Info, cluster *managementv3.Cluster) (bool, error) {
		key := client.ObjectKey{Namespace: cluster.Labels[rkev1.OwnerClusterNamespaceLabel], Name: cluster.Labels[rkev1.OwnerClusterNameLabel]}
		group := provisioningv1.GroupVersion.Group
		err := c.Get(ctx, key, &provisioningv1.Cluster{})
		if apierrors.IsNotFound(err) {
			group = clusterv1.GroupVersion.Group
		} else if err != nil {
			return false, fmt.Errorf("reading Cluster %s: %w", key, err)
		}
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: key.Namespace, Name: key.Name, Verb: "get", Group: group, Resource: "clusters", Subresource: "proxy",
			},
			User: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups(), Extra: extra(u),
		}}
		if err := c.Create(ctx, review); err != nil {
			return false, fmt.Errorf("reviewing the access of a user: %w", err)
		}
		return review.Status.Allowed && !review.Status.Denied, nil
	}
}

func extra(u user.Info) map[string]authorizationv1.ExtraValue {
	out := make(map[string]authorizationv1.ExtraValue, len(u.GetExtra()))
	for key, values := range u.GetExtra() {
		out[key] = values
	}
	return out
}
