// Package render turns what is wanted of a cluster and what is known of one of its machines into that machine's plan. It is pure: it
// has no client, no clock and no randomness, so that the same inputs always give the same bytes. It decides what a plan says; when a
// plan is delivered is decided in hub/plan/rollout.
package render

import (
	corev1 "k8s.io/api/core/v1"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/plan/release"
	"github.com/drover-dev/drover/hub/server/settings"
	"github.com/drover-dev/drover/plans"
)

// Inputs is everything that one plan is made of.
type Inputs struct {
	// Cluster that the machine belongs to.
	Cluster Cluster
	// Machine that the plan is for.
	Machine Machine
	// JoinURL is the URL at which the machine joins the cluster; empty for the init node.
	JoinURL string
	// Delivered is the plan that the machine was given last; the zero plan before the first. Files of it that are no longer wanted are
	// removed from the machine.
	Delivered plans.Plan
}

// Cluster is what all plans of a cluster share.
type Cluster struct {
	// Namespace of the Cluster.
	Namespace string
	// Name of the Cluster.
	Name string
	// ManagementName is the name of the management Cluster, c-m-….
	ManagementName string
	// Spec of the RKEControlPlane.
	Spec rkev1.RKEControlPlaneSpec
	// Release is what the cluster's version accepts.
	Release release.Release
	// Settings of the hub.
	Settings settings.Settings
	// ConfigGeneration is how often Rancher has restored the cluster: it is in the stamps of the machines, which restart with another one.
	ConfigGeneration int64
	// Endpoint is the host of the control plane's endpoint; empty without one.
	Endpoint string
	// Tokens with which machines join.
	Tokens Tokens
	// CA is set where the hub has the cluster's certificate authorities.
	CA CA
	// Objects are the Secrets and ConfigMaps that Spec refers to.
	Objects Objects
	// PullSecrets are the hub's credentials for its system default registry (kubernetes.io/dockerconfigjson), in the operator's order.
	PullSecrets []Object
	// Agent is set once the cluster-agent's registration token exists.
	Agent *Agent
	// Prime selects RKE2 Prime, if the release has it.
	Prime bool
	// SnapshotMetadata is the metadata of the cluster's specification for every etcd snapshot; empty for none.
	SnapshotMetadata string
	// Bootstrapped is true once the cluster was started. Before, the init node is given the certificate authorities and, if there are
	// BootstrapSecrets, plans contain no other manifests.
	Bootstrapped bool
	// BootstrapSecrets are Secrets that the cluster needs first, sorted by namespace and name.
	BootstrapSecrets []BootstrapSecret
}

// BootstrapSecret is a Secret to be created in the cluster.
type BootstrapSecret struct {
	// Namespace in the cluster.
	Namespace string
	// Name in the cluster.
	Name string
	// Type of the Secret.
	Type string
	// Data of the Secret.
	Data map[string][]byte
}

// Tokens are the secrets that machines join with.
type Tokens struct {
	// Server lets a machine join as a server, Agent only as an agent.
	Server, Agent string
	// NewServer and NewAgent are those that replace Server and Agent when a TokenRotation has gone through; empty for none.
	NewServer, NewAgent string
}

// CA holds the cluster's certificate authorities. Either is empty where the cluster made its own.
type CA struct {
	// Server signs the serving certificate of the Kubernetes API, Client the certificates of its clients.
	Server, Client KeyPair
}

// KeyPair is a certificate and its key in PEM.
type KeyPair struct {
	// Cert is the certificate.
	Cert []byte
	// Key is the private key.
	Key []byte
}

// Empty reports whether there is no key pair.
func (p KeyPair) Empty() bool {
	return len(p.Cert) == 0 && len(p.Key) == 0
}

// Machine is what is known of a machine.
type Machine struct {
	// Name of the Machine of Cluster API.
	Name string
	// UID is the UID of the CAPI Machine; the Node carries it as a label and is found by it.
	UID string
	// Labels are those of the CAPI Machine, which selectors of the cluster match.
	Labels map[string]string
	// OS is "linux" or "windows"; empty means linux.
	OS string
	// Unapplied is set while the machine has not applied the delivered plan, and has applied another one, which it may still run with.
	Unapplied bool

	// Etcd is the role of a member of etcd.
	Etcd bool
	// ControlPlane is the role of an API server.
	ControlPlane bool
	// Worker is the role of a machine for workloads.
	Worker bool
	// Init is true for the one machine that starts the cluster and that the others join first.
	Init bool
	// Applied is true if the agent has applied the delivered plan, and keeps its state, so that it does not apply the same plan again.
	Applied bool

	// ProviderID is the ID that the infrastructure gives the machine, by which its Node is found; empty if the Node's own is used.
	ProviderID string
	// NodeName is the name of the Node; empty for the machine's hostname.
	NodeName string
	// Addresses are the machine's external addresses and InternalAddresses its internal ones, as its owner gave them.
	Addresses, InternalAddresses []string
	// DetectedAddress is the address from which the machine reached the hub.
	DetectedAddress string
	// Addressed is true if the hub knows an address of the machine.
	Addressed bool
	// NodeLabels are the labels with which the Node registers. Labels that a kubelet may not set on its own Node are left out: the hub
	// syncs them later.
	NodeLabels map[string]string
	// NodeTaints are the taints with which the Node registers.
	NodeTaints []corev1.Taint
}

// server reports whether the machine runs the server part of the distribution.
func (m Machine) server() bool { return m.Etcd || m.ControlPlane }

// windows reports whether the machine runs Windows.
func (m Machine) windows() bool { return m.OS == "windows" }

// FailureThreshold is after how many failures of the agent a plan of the machine counts as failed. A Windows machine may fail more often:
// its installer does while the machine has to restart. Both figures are those of Provisioning V2.
func (m Machine) FailureThreshold() int {
	if m.windows() {
		return 5
	}
	return 1
}

// onlyEtcd reports whether the machine runs etcd but no control plane.
func (m Machine) onlyEtcd() bool { return m.Etcd && !m.ControlPlane }

// names of the runtime of the cluster.
func (c Cluster) names() release.Names { return release.NamesOf(c.Release.Runtime) }
