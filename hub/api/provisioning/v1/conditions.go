package v1

// Condition types of a Cluster.
const (
	// CreatedCondition is true once the management Cluster, its namespace and its registration token exist.
	CreatedCondition = "Created"
	// RKEClusterCondition is true once the Cluster API objects are what the spec asks for; where it is false it says which field is wrong.
	RKEClusterCondition = "RKECluster"
	// MachinePoolsReadyCondition is true while every machine pool has as many machines as it asks for, all of them of its present template.
	MachinePoolsReadyCondition = "MachinePoolsReady"
	// ProvisionedCondition is true once the cluster came up; it stays true.
	ProvisionedCondition = "Provisioned"
	// UpdatedCondition is true while every machine has the configuration that the spec asks for.
	UpdatedCondition = "Updated"
	// ReconcilingCondition is true while the machines do not have the whole spec, also where the cluster is ready with what they have. It is a
	// condition of kstatus, by which Flux and others assess objects, and does not exist otherwise.
	ReconcilingCondition = "Reconciling"
	// ReadyCondition sums up the cluster.
	ReadyCondition = "Ready"
	// ConnectedCondition is true while the cluster-agent is connected to the hub.
	ConnectedCondition = "Connected"
	// AgentDeployedCondition is true once the cluster-agent has connected for the first time; it stays true.
	AgentDeployedCondition = "AgentDeployed"
	// SystemAgentsUpgradedCondition is true while the system-agents of all machines are those that redeploySystemAgentGeneration has asked
	// for; it is there only once that was set.
	SystemAgentsUpgradedCondition = "SystemAgentsUpgraded"
	// RemovedCondition tells how far a deletion is.
	RemovedCondition = "Removed"
)
