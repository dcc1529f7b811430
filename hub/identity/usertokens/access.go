package usertokens

import (
	"context"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"sigs.k8s.io/controller-runtime/pkg/client"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	"github.com/drover-dev/drover/hub/util/ownership"
)

// Review returns a Handler's Allowed that asks the hub's Kubernetes: whoever may get the subresource proxy of a Cluster may reach it. The
// Cluster is that of provisioning.cattle.io, or of Cluster API if there is none.
func Review(c client.Client) func(context.Context, user.Info, *managementv3.Cluster) (bool, error) {
	return func(ctx context.Context, u user.Info, cluster *managementv3.Cluster) (bool, error) {
		owned, err := ownership.ClusterOf(ctx, c, cluster)
		if err != nil || owned == nil {
			return false, err
		}
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: owned.Namespace, Name: owned.Name, Verb: "get",
				Group: owned.GroupVersion().Group, Resource: "clusters", Subresource: "proxy",
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
