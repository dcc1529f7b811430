// Package render turns what is wanted of a cluster and what is known of one of its machines into that machine's plan. It is pure: it
// has no client, no clock and no randomness, so that the same inputs always give the same bytes. It decides what a plan says; when a
// plan is delivered is decided in hub/rollout.
package render

import (
	corev1 "k8s.io/api/core/v1"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/release"
	"github.com/drover-dev/drover/hub/settings"
	"github.com/drover-dev/drover/plans"
)

// Inputs is everything that one plan is made of.
type Inputs struct {
	Cluster Cluster
	Machine Machine
	// JoinURL is where the machine joins the cluster; empty for the init node.
	JoinURL string
	// Delivered is the plan that the machine was given last; the zero plan before the first. Files of it that are no longer wanted are
	// removed from the machine.
	Delivered plans.Plan
}

// Cluster is what all plans of a cluster share.
type Cluster struct {
	Namespace, Name string
	// ManagementName is the name of the management Cluster, c-m-….
	ManagementName string
	Spec           rkev1.RKEControlPlaneSpec
	Release        release.Release
	Settings       settings.Settings
	// ConfigGeneration grows with each restore, so that every machine restarts after one.
	ConfigGeneration int64
	// Endpoint is the host of the control plane's endpoint; empty without one.
	Endpoint string
	Tokens   Tokens
	CA       CA
	Objects  Objects
	// PullSecrets are the hub's credentials for its system default registry (kubernetes.io/dockerconfigjson), in the operator's order.
	PullSecrets []Object
	// Agent is set once the hub knows what the cluster-agent introduces itself with.
	Agent *Agent
	// Prime asks for the edition of RKE2 with long support, where the release has one.
	Prime bool
	// SnapshotMetadata is what every snapshot of etcd shall carry of the cluster's specification; empty for nothing.
	SnapshotMetadata string
	// Bootstrapped tells that the cluster was started. Until then, where there are BootstrapSecrets, the cluster is given nothing but these.
	Bootstrapped bool
	// BootstrapSecrets are Secrets that the cluster needs before anything else, sorted by namespace and name.
	BootstrapSecrets []BootstrapSecret
}

// BootstrapSecret is a Secret as it shall be in the cluster.
type BootstrapSecret struct {
	Namespace, Name, Type string
	Data                  map[string][]byte
}

// Tokens are the secrets that machines join with.
type Tokens struct {
	// Server lets a machine join as a server, Agent only as an agent.
	Server, Agent string
}

// CA holds the cluster's certificate authorities. Either is empty where the cluster made its own.
type CA struct {
	// Server signs the serving certificate of the Kubernetes API, Client the certificates of its clients.
	Server, Client KeyPair
}

// KeyPair is a certificate and its key in PEM.
type KeyPair struct {
	Cert, Key []byte
}

// Empty tells whether there is no key pair.
func (p KeyPair) Empty() bool {
	return len(p.Cert) == 0 && len(p.Key) == 0
}

// Machine is what is known of a machine.
type Machine struct {
	Name string
	// UID is the UID of the CAPI Machine; the Node carries it as a label and is found by it.
	UID string
	// Labels are those of the CAPI Machine, which selectors of the cluster match.
	Labels map[string]string
	// OS is "linux" or "windows"; empty means linux.
	OS string

	Etcd, ControlPlane, Worker bool
	// Init is set on the one machine that starts the cluster and that the others join first.
	Init bool

	// ProviderID is what the machine's infrastructure calls it; empty where the Node's own is taken. The Node is tied to its Machine by it.
	ProviderID string
	// NodeName is the name the Node shall have; empty leaves it to the machine.
	NodeName string
	// Addresses are the machine's external addresses and InternalAddresses its internal ones, as its owner gave them.
	Addresses, InternalAddresses []string
	// DetectedAddress is the address from which the machine reached the hub.
	DetectedAddress string
	// Addressed tells that the hub knows where to reach the machine.
	Addressed bool
	// NodeLabels and NodeTaints are for the Node, when it registers. Labels that a kubelet may not give to its own Node are left to whoever
	// keeps them up to date later.
	NodeLabels map[string]string
	NodeTaints []corev1.Taint
}

// server tells whether the machine runs the server part of the distribution.
func (m Machine) server() bool { return m.Etcd || m.ControlPlane }

// windows tells whether the machine runs Windows.
func (m Machine) windows() bool { return m.OS == "windows" }

// FailureThreshold is after how many failures of the agent a plan of the machine counts as failed. A Windows machine may fail more often: its
// installer does while the machine has to restart. Both figures are those of Provisioning V2.
func (m Machine) FailureThreshold() int {
	if m.windows() {
		return 5
	}
	return 1
}

// onlyEtcd tells whether the machine runs etcd but no control plane.
func (m Machine) onlyEtcd() bool { return m.Etcd && !m.ControlPlane }

// names of the runtime of the cluster.
func (c Cluster) names() release.Names { return release.NamesOf(c.Release.Runtime) }
