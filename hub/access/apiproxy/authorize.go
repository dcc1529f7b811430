package apiproxy

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"sigs.k8s.io/controller-runtime/pkg/client"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	"github.com/drover-dev/drover/hub/util/ownership"
)

// authorize lets through who may "get" the subresource "proxy" of the Cluster, by the management cluster's own rules.
func (h *Handler) authorize(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := h.mayReach(r.Context(), callOf(r)); err != nil {
			if code := err.ErrStatus.Code; code >= http.StatusInternalServerError {
				h.log.Error(err, "Could not decide whether a user may reach a cluster", "Cluster", callOf(r).cluster)
			}
			writeError(w, r, err)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// mayReach returns nil, or the answer that the user gets.
func (h *Handler) mayReach(ctx context.Context, c *call) *apierrors.StatusError {
	if len(c.audience) > 0 && !slices.Contains(c.audience, c.cluster) {
		return statusError(http.StatusForbidden, metav1.StatusReasonForbidden, "this token is for another cluster")
	}
	attributes, err := h.attributes(ctx, c)
	if err != nil {
		return err
	}
	decision, reason, failed := h.opts.Authorizer.Authorize(ctx, attributes)
	switch {
	case failed != nil:
		return unavailable("the hub could not find out whether you may reach this cluster: %v", failed)
	case decision != authorizer.DecisionAllow:
		return responsewriters.ForbiddenStatusError(attributes, reason)
	}
	return nil
}

// attributes are what the management cluster is asked for. Nothing of them is kept: a Cluster that is gone is not found by the next
// request.
func (h *Handler) attributes(ctx context.Context, c *call) (authorizer.AttributesRecord, *apierrors.StatusError) {
	management := &managementv3.Cluster{}
	if err := h.opts.Clusters.Get(ctx, client.ObjectKey{Name: c.cluster}, management); err != nil {
		return authorizer.AttributesRecord{}, lookupError(err, "the hub has no cluster %q", c.cluster)
	}
	owned, err := ownership.ClusterOf(ctx, h.opts.Clusters, management)
	if err != nil {
		return authorizer.AttributesRecord{}, lookupError(err, "")
	}
	if owned == nil {
		return authorizer.AttributesRecord{}, notFound("the Cluster %s behind %q is gone", ownership.Key(management), c.cluster)
	}
	c.imported = owned.Imported()
	gv := owned.GroupVersion()
	return authorizer.AttributesRecord{
		User: c.user, Verb: "get", Namespace: owned.Namespace, Name: owned.Name,
		APIGroup: gv.Group, APIVersion: gv.Version, Resource: "clusters", Subresource: "proxy", ResourceRequest: true,
	}, nil
}

func lookupError(err error, format string, args ...any) *apierrors.StatusError {
	if apierrors.IsNotFound(err) {
		return notFound(format, args...)
	}
	return unavailable("the hub could not look for the cluster: %v", fmt.Errorf("reading the cache: %w", err))
}
