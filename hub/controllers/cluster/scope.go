package cluster

import (
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/util/cause"
	"github.com/drover-dev/drover/hub/util/patch"
)

// scope is what one reconcile has read and found.
type scope struct {
	// patch writes cluster.
	patch *patch.Helper
	// cluster is the object that is reconciled. Phases change its metadata and status.
	cluster *provisioningv1.Cluster
	// management is set once the management Cluster exists.
	management *managementv3.Cluster
	// capiCluster and controlPlane are set once they exist.
	capiCluster  *clusterv1.Cluster
	controlPlane *rkev1.RKEControlPlane
	// taken is set where the Cluster API Cluster of this name is not the Cluster's.
	taken *cause.Cause
	// kubeconfigSecret is the name of the kubeconfig Secret, once it exists.
	kubeconfigSecret string

	// unread says what was not read because of an error. The status keeps what was known of it.
	unread unread

	// created is why the management Cluster does not exist yet; nil when it does.
	created *cause.Cause
	// invalid are the problems of the spec that keep all of it from being passed on.
	invalid []*cause.Cause
	// passedOn is true once the objects of Cluster API were applied; unwritten is why they could not be.
	passedOn  bool
	unwritten *cause.Cause
	// applied is the generation of the RKEControlPlane after that, which the cache may not have yet.
	applied int64
	// partial are problems of one part of the spec; the rest is passed on.
	partial []*cause.Cause
	// pools are the machine pools of the spec; set by reconcilePools.
	pools []*poolScope
	// removal is what a deletion waits for; nil when it is complete.
	removal *cause.Cause
}

// unread has what could not be read because of an error.
type unread struct {
	spec, pools, controlPlane, kubeconfig bool
}

// imported is true for a cluster that the hub did not create and reaches through its agent.
func (s *scope) imported() bool { return s.cluster.Spec.RKEConfig == nil }
