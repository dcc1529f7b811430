package v1

import "time"

// CertificatesExpireSoon is how long before its end a certificate of a cluster counts as one that ends soon.
const CertificatesExpireSoon = 60 * 24 * time.Hour

// Condition types of the kinds of this package beyond those of the Cluster API contract (Ready, Paused, Available, ...).
const (
	// ProvisionedCondition is true once the cluster has had machines for every role.
	ProvisionedCondition = "Provisioned"
	// BootstrappedCondition is true once the init node has applied its plan and was healthy.
	BootstrappedCondition = "Bootstrapped"
	// StableCondition is true while no machine is missing, or waits for a plan, for its agent or for probes.
	StableCondition = "Stable"
	// ReadyCondition sums up the object.
	ReadyCondition = "Ready"
	// ReconciledCondition, on a Machine, tells what was decided about it, and on other objects about their last reconcile.
	ReconciledCondition = "Reconciled"
	// UpdatedCondition is true while every machine has the configuration that the Cluster asks for.
	UpdatedCondition = "Updated"
	// CertificatesValidCondition, on an RKEControlPlane, is false while a certificate of the cluster ends soon. It does not exist until an
	// agent has reported the end of one.
	CertificatesValidCondition = "CertificatesValid"
	// PlanAppliedCondition, on a Machine, tells what became of the machine's last plan. It does not exist until a plan was delivered.
	PlanAppliedCondition = "PlanApplied"
	// WaitingForPlanReason is that of PlanAppliedCondition where no plan is delivered. Earlier hubs set it on each new machine.
	WaitingForPlanReason = "WaitingForPlan"
	// SystemAgentUpgradedCondition is true on RKEBootstrap and Machine while the system-agent of the machine is the one that
	// redeploySystemAgentGeneration has asked for; it is there only once that was set.
	SystemAgentUpgradedCondition = "SystemAgentUpgraded"
	// SystemUpgradeControllerReadyCondition is kept for existing tools.
	SystemUpgradeControllerReadyCondition = "SystemUpgradeControllerReady"
	// IdentityReadyCondition, on an RKEBootstrap, is true once the machine's ServiceAccount, token and plan Secret exist.
	IdentityReadyCondition = "IdentityReady"
	// DataSecretReadyCondition, on an RKEBootstrap, is true once the bootstrap data Secret exists.
	DataSecretReadyCondition = "DataSecretReady"
	// EtcdMemberRemovedCondition, on a Machine that is being deleted, tells what the removal of its member of etcd waits for.
	EtcdMemberRemovedCondition = "EtcdMemberRemoved"
	// NodeFoundCondition, on a CustomMachine, is true once the Node of the machine was seen in its cluster.
	NodeFoundCondition = "NodeFound"
	// NodeMissingCondition, on a CustomMachine, is true while Cluster API says that the Node that its Machine had is gone; otherwise it does
	// not exist.
	NodeMissingCondition = "NodeMissing"
	// NodeSyncedCondition, on an RKEBootstrap, is false while labels or taints of the machine cannot be put on its Node. It does not exist
	// until that was so once.
	NodeSyncedCondition = "NodeSynced"
)
