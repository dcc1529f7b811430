package rkecontrolplane

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/plan/machinestate"
	"github.com/drover-dev/drover/hub/plan/release"
	"github.com/drover-dev/drover/hub/plan/render"
	"github.com/drover-dev/drover/hub/plan/rollout"
	"github.com/drover-dev/drover/hub/util/cause"
	"github.com/drover-dev/drover/hub/util/patch"
	"github.com/drover-dev/drover/plans"
)

// scope is what one reconcile has read and decided. The comments name the phase that sets a field.
type scope struct {
	controlPlane *rkev1.RKEControlPlane
	// patch writes the RKEControlPlane; nil in a preview.
	patch *patch.Helper
	// now is when the reconcile began.
	now time.Time
	// cluster is nil until Cluster API has set the owner of the RKEControlPlane. The Cluster refers to the RKEControlPlane, too.
	cluster *clusterv1.Cluster
	// refused says why the Cluster that the RKEControlPlane names as its owner does not count; nil where it does or none is named.
	refused *cause.Cause
	// infraCluster is nil where the cluster's infrastructure is another provider's (findInfraCluster).
	infraCluster *rkev1.RKECluster
	// management is the name of the cluster's own management Cluster; empty for none (findManagement).
	management string
	// release of the desired version (findRelease).
	release release.Release
	// work is what the hub has to do for the machines of the cluster, and backlog for those of all; nothing until updateMachines.
	work, backlog work
	// plans are what an earlier reconcile has decoded and rendered; nil for nothing.
	plans *clusterPlans
	// machines are all Machines of the cluster that have an RKEBootstrap, by name, and others those without one. poolReplicas is the sum of
	// the replicas of MachineDeployments for control plane machines. loaded is set once all were read (loadMachines), live once those of
	// servers were read past the cache (planLive). allStates is what states has returned last.
	machines     []*machine
	others       []*clusterv1.Machine
	allStates    []rollout.Machine
	poolReplicas int32
	// metal3 are the Metal3Machines of Machines, by UID, that are not provisioned yet (findMetal3).
	metal3 map[string]*unstructured.Unstructured
	// missing are MachineDeployments of which fewer Machines exist than they ask for, notCreated why Cluster API cannot create some
	// (loadMachines).
	missing, notCreated []string
	loaded, live        bool
	// unasked is set from when the machines were read until the cluster was asked for its Nodes (readNodes), unrendered until the wanted plans
	// were rendered (renderPlans): a wait, a conflict or an error may end a reconcile before.
	unasked, unrendered bool
	// deployments are the cluster's MachineDeployments of machines with RKEBootstraps, perhaps the cache's own: they are not to be changed
	// (loadMachines).
	deployments []clusterv1.MachineDeployment
	// nodes are the cluster's Nodes; nil where there is no connection. unreachableSince is when the cluster last answered, where the
	// connection was lost; zero where it was not, or never existed. neverReached is set where this hub has had none (readNodes).
	nodes            *machinestate.Nodes
	unreachableSince time.Time
	neverReached     bool
	// orphanedMembers are the members of etcd without a Machine (readNodes).
	orphanedMembers []rollout.Member
	// outdated is why nothing is delivered where the hub was restored from a backup that may be of before an upgrade of the cluster; zero if
	// it is not (checkRestored).
	outdated rollout.Wait

	// tokens by which machines join, of tokenSecret (ensureTokens, rotateTokens). It is not to be changed.
	tokens      render.Tokens
	tokenSecret *corev1.Secret
	// clientCA and serverCA are nil where the cluster has created its own (ensureCA).
	clientCA, serverCA *authority
	// agentToken is the registration token of the cluster-agent, agentKeys the hub's public keys; empty while unknown (findAgentToken).
	agentToken string
	agentKeys  []byte
	// objects are the Secrets and ConfigMaps that the specification refers to, pullSecrets the hub's credentials for its system default
	// registry, bootstrapSecrets what a new cluster has from its start (readReferences).
	objects          render.Objects
	pullSecrets      []render.Object
	bootstrapSecrets []render.BootstrapSecret

	// operation is the one that is in progress or begins next; nil for none. observedOperation is as it was read (findOperation).
	operation, observedOperation operationv1.Operation
	// waiting are all operations that have not ended (findOperation).
	waiting []operationv1.Operation
	// rotations are all CertificateRotations of the cluster (findOperation).
	rotations []*operationv1.CertificateRotation
	// certificates is the condition CertificatesValid; nil where no certificate is known (watchCertificates).
	certificates *metav1.Condition
	// deleteNodes are the names of Nodes that the operation deletes (plan).
	deleteNodes []string
	// deletedSnapshot is the ETCDSnapshot that the operation deletes; nil for none (plan).
	deletedSnapshot *rkev1.ETCDSnapshot

	// election of the init node, inputs that all plans share, problems of the specification, and what rollout decided; nil before (plan).
	election rollout.Election
	inputs   render.Cluster
	problems render.Problems
	outcome  *rollout.Outcome

	// wait is why the phases stopped; zero if they did not.
	wait rollout.Wait
	// kubeconfig is why there is no kubeconfig; zero if there is one (ensureKubeconfig).
	// kubeconfigNote is what there is to say of one that can be used; empty for nothing (ensureKubeconfig).
	// kubeconfigRead is whether the reconcile came so far that these are known; a conflict may end it before (ensureKubeconfig).
	kubeconfig     rollout.Wait
	kubeconfigNote string
	kubeconfigRead bool
	// deleting is what a deletion waits for (reconcileDelete).
	deleting string

	requeueAfter time.Duration
	// rest is how long no event brings the next reconcile.
	rest time.Duration
}

// machine is a Machine and what belongs to it.
type machine struct {
	machine   *clusterv1.Machine
	bootstrap *rkev1.RKEBootstrap
	// secret is the plan Secret, perhaps the cache's own: it is not to be changed. Nil until it exists.
	secret *corev1.Secret
	// known is what is kept for the next reconcile, by the Secret (loadMachines).
	known *machinePlan
	// report of the agent; reportErr says why it could not be decoded.
	report    rollout.Report
	reportErr error

	// inputs of the plan; inputsErr says which annotation could not be decoded.
	inputs    render.Machine
	inputsErr error
	// state that rollout decides on.
	state rollout.Machine
	// reported are the addresses that Cluster API or the Node report, selected those of them in the plan.
	reported, selected machinestate.Addresses

	// joinURL is what the plan joins. plan is the wanted one, and encoded its bytes; empty where none is rendered. invalid says why an agent
	// cannot apply it.
	joinURL string
	plan    plans.Plan
	encoded []byte
	invalid error
	// decision of rollout. outdated is set where the delivered plan was not applied in a backup that may be of before an upgrade.
	decision rollout.Decision
	outdated bool
}

// clusterName is the name of the cluster and of its Cluster of Cluster API.
func (s *scope) clusterName() string {
	switch {
	case s.cluster != nil:
		return s.cluster.Name
	case s.controlPlane.Spec.ClusterName != "":
		return s.controlPlane.Spec.ClusterName
	}
	return s.controlPlane.Name
}

func isInitialized(c *rkev1.RKEControlPlane) bool {
	return ptr.Deref(c.Status.Initialization.ControlPlaneInitialized, false)
}

// bootstrapped reports whether the cluster was ever started. The join URLs in annotations of plan Secrets outlive a lost status.
func (s *scope) bootstrapped() bool {
	for _, m := range s.machines {
		if m.state.JoinURL != "" {
			return true
		}
	}
	return isInitialized(s.controlPlane) || conditions.IsTrue(s.controlPlane, rkev1.BootstrappedCondition)
}

// delivered reports whether any machine was ever given a plan.
func (s *scope) delivered() bool {
	for _, m := range s.machines {
		if m.report.Checksum != "" {
			return true
		}
	}
	return s.bootstrapped()
}

// administrator reports whether the hub is an administrator of the cluster: it has the CA of client certificates.
func (s *scope) administrator() bool { return s.clientCA != nil }

// requeue reconciles again after a while; zero for on any change.
func (s *scope) requeue(after time.Duration) {
	if after > 0 && (s.requeueAfter == 0 || after < s.requeueAfter) {
		s.requeueAfter = after
	}
}

// waitFor stops the phases.
func (s *scope) waitFor(reason, message string) {
	s.wait = rollout.Wait{Reason: reason, Message: message}
}

// key of an object in the namespace of the cluster.
func (s *scope) key(name string) client.ObjectKey {
	return client.ObjectKey{Namespace: s.controlPlane.Namespace, Name: name}
}
