package cluster

import (
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/controllers/patch"
)

// scope is what one pass over a Cluster has read and found.
type scope struct {
	// patch writes cluster.
	patch *patch.Helper
	// cluster is set from the beginning; its metadata, spec and status are what the pass ends in.
	cluster *provisioningv1.Cluster
	// management is set once the management Cluster exists.
	management *managementv3.Cluster
	// capiCluster and controlPlane are set once they exist.
	capiCluster  *clusterv1.Cluster
	controlPlane *rkev1.RKEControlPlane
	// kubeconfigSecret is the name of the kubeconfig Secret, once it exists.
	kubeconfigSecret string

	// unread are the things of which a reconcile that failed knows nothing, so that what was known of them stays.
	unread unread

	// created tells why the management Cluster is not there yet; nil when it is.
	created *problem
	// invalid are the faults of the spec that keep it from being handed on.
	invalid []problem
	// handedOn is set once the objects of Cluster API are what the spec asks for.
	handedOn bool
	// partial are faults of one part of the spec; all else is handed on.
	partial []problem
	// pools are the machine pools of the spec, set once they have been looked at.
	pools []*poolScope
	// removal tells what a deletion waits for; nil when it waits for nothing.
	removal *problem
}

// unread tells what could not be read or was not looked at because of an error.
type unread struct {
	spec, pools, controlPlane, kubeconfig bool
}

// imported tells that the cluster was made elsewhere: the hub only reaches it, through its agent.
func (s *scope) imported() bool { return s.cluster.Spec.RKEConfig == nil }

// problem is a reason in CamelCase with the words for it.
type problem struct {
	reason, message string
}
