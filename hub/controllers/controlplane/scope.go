package controlplane

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/controllers/machinestate"
	"github.com/drover-dev/drover/hub/ownership"
	"github.com/drover-dev/drover/hub/release"
	"github.com/drover-dev/drover/hub/render"
	"github.com/drover-dev/drover/hub/rollout"
	"github.com/drover-dev/drover/plans"
)

// scope is what one pass has read and found.
type scope struct {
	controlPlane *rkev1.RKEControlPlane
	// cluster is nil until Cluster API has made the RKEControlPlane its own. The Cluster names the RKEControlPlane, too.
	cluster *clusterv1.Cluster
	// infraCluster is nil where the cluster's infrastructure is another provider's; set by findInfraCluster.
	infraCluster *rkev1.RKECluster
	// refused says why a Cluster that the RKEControlPlane names as its owner does not count; nil where one does or none is named.
	refused *ownership.Refusal
	// management is the name of the cluster's management Cluster, set by findManagement once that was seen to be the cluster's; empty where the
	// RKEControlPlane names none.
	management string
	// release is set by findRelease.
	release release.Release
	// machines are all Machines of the cluster that have an RKEBootstrap, by name; set by loadMachines.
	machines []*machine
	// pooled is how many control plane Machines MachineDeployments are to make; set by loadMachines.
	pooled int32
	// loaded tells that machines is what there is; fresh tells that it was read past the cache.
	loaded, fresh bool
	// nodes are the cluster's Nodes; nil where the cluster could not be asked. Set by readNodes.
	nodes *machinestate.Nodes
	// silentSince is when the cluster last answered, where the connection to it is lost; zero where it is not, or never was there. Set by
	// readNodes.
	silentSince time.Time
	// strangers are the members of etcd without a Machine; set by readNodes.
	strangers []rollout.Member

	// tokens and ca are set by ensureTokens and ensureCA; clientCA and serverCA are nil where the cluster has made its own.
	tokens             render.Tokens
	clientCA, serverCA *authority

	// agentToken is what the cluster-agent introduces itself with, and agentKeys the hub's public keys; empty while they are not known. Set by
	// findAgentToken.
	agentToken string
	agentKeys  []byte

	// election is set by electInitNode.
	election rollout.Election
	// objects are the Secrets and ConfigMaps that the specification refers to; set by readReferences.
	objects render.Objects
	// pullSecrets are the hub's credentials for its system default registry; set by readReferences.
	pullSecrets []render.Object
	// bootstrapSecrets are what the cluster is to have before anything else; set by readReferences.
	bootstrapSecrets []render.BootstrapSecret
	// inputs are what all plans share; set by renderPlans.
	inputs render.Cluster
	// problems are what is wrong with the specification; set by renderPlans.
	problems render.Problems

	// wait says what the pass could not go past; zero if it went through.
	wait rollout.Wait
	// outcome is what rollout decided; set by decide, nil before.
	outcome *rollout.Outcome
	// kubeconfig says why there is no kubeconfig; zero if there is one.
	kubeconfig rollout.Wait

	// deleting says what a deletion waits for.
	deleting string

	requeueAfter time.Duration
}

// machine is a Machine and what belongs to it.
type machine struct {
	machine   *clusterv1.Machine
	bootstrap *rkev1.RKEBootstrap
	// secret is the plan Secret as it was read, perhaps the cache's own: it is not to be changed. Nil until it is made.
	secret *corev1.Secret
	// report is what the agent says.
	report rollout.Report
	// reportErr says why the report could not be read.
	reportErr error

	// facts go into the plan, state into decisions.
	facts render.Machine
	state rollout.Machine
	// factsErr says why the facts could not be read.
	factsErr error
	// reported are the addresses that Cluster API knows of the machine; settled are those of them that its plan is made with.
	reported, settled addressSet

	// joinURL is what the machine's plan joins; plan and raw are the wanted plan and its bytes.
	joinURL string
	plan    plans.Plan
	raw     []byte
	// decision is rollout's.
	decision rollout.Decision
}

// bootstrapped tells whether the cluster was ever started. The join URLs in annotations of plan Secrets outlive a lost status.
func (s *scope) bootstrapped() bool {
	for _, m := range s.machines {
		if m.state.JoinURL != "" {
			return true
		}
	}
	return isInitialized(s.controlPlane) || isTrue(s.controlPlane, rkev1.BootstrappedCondition)
}

// delivered tells whether any machine was ever given a plan.
func (s *scope) delivered() bool {
	for _, m := range s.machines {
		if m.report.Checksum != "" {
			return true
		}
	}
	return s.bootstrapped()
}

// lookAgain has the control plane worked on again after a while, or sooner where something else needs that.
func (s *scope) lookAgain(after time.Duration) {
	if s.requeueAfter == 0 || after < s.requeueAfter {
		s.requeueAfter = after
	}
}
