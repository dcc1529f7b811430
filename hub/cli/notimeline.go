package cli

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/util/objects"
)

// noTimelineError is returned for a cluster of which no hub has recorded anything.
type noTimelineError struct {
	cluster client.ObjectKey
	why     string
}

func (e noTimelineError) Error() string {
	return fmt.Sprintf("cluster %s has no timeline: %s", e.cluster, e.why)
}

// noTimeline says why a cluster has no timeline. For who may not read Clusters it names both reasons.
func noTimeline(ctx context.Context, c client.Reader, cluster client.ObjectKey) error {
	e := noTimelineError{cluster, "the cluster does not exist or no hub manages it"}
	provisioning, capi := &provisioningv1.Cluster{}, &clusterv1.Cluster{}
	isProvisioning, err := objects.Get(ctx, c, cluster, provisioning)
	if err != nil {
		return e
	}
	isCAPI, err := objects.Get(ctx, c, cluster, capi)
	if err != nil {
		return e
	}
	switch {
	case isProvisioning && provisioning.Spec.RKEConfig == nil:
		e.why = "without spec.rkeConfig it is imported, and the hub does not manage its machines; see the conditions of the Cluster of " +
			"provisioning.cattle.io"
	case isProvisioning || isCAPI && rkev1.Refers(capi.Spec.ControlPlaneRef, "RKEControlPlane"):
		e.why = "no hub has worked on it since it was created"
	case isCAPI:
		e.why = "its control plane is not an RKEControlPlane"
	default:
		e.why = "there is no Cluster of this name"
	}
	return e
}
