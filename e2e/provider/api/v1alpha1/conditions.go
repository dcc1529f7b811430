package v1alpha1

// Conditions of the kinds of this package; beside them are Cluster API's own Paused and Deleting.
const (
	// ReadyCondition is true once all is as it was asked for.
	ReadyCondition = "Ready"
	// HostOnCondition of a LabMachine is true while its host runs.
	HostOnCondition = "HostOn"
	// BootstrapFinishedCondition of a LabMachine is true once the host has run its bootstrap data to the end; it stays true.
	BootstrapFinishedCondition = "BootstrapFinished"
)

// Reasons of the conditions.
const (
	ProvisionedReason              = "Provisioned"
	WaitingForOwnerReason          = "WaitingForOwner"
	WaitingForInfrastructureReason = "WaitingForClusterInfrastructure"
	WaitingForBootstrapDataReason  = "WaitingForBootstrapData"
	LoadBalancerFailedReason       = "LoadBalancerFailed"
	HostFailedReason               = "HostFailed"
	HostStartingReason             = "Starting"
	HostOnReason                   = "On"
	HostOffReason                  = "Off"
	HostGoneReason                 = "Gone"
	BootstrapNotStartedReason      = "NotStarted"
	BootstrapRunningReason         = "Running"
	BootstrapFailedReason          = "Failed"
	BootstrapFinishedReason        = "Finished"
)
