package v1

// Labels of rke.cattle.io. Selectors of hub, gateway and users rely on them.
const (
	// ClusterNameLabel names the Cluster (of provisioning.cattle.io and of Cluster API, which share it).
	ClusterNameLabel = "rke.cattle.io/cluster-name"
	// EtcdRoleLabel, ControlPlaneRoleLabel and WorkerRoleLabel are "true" on the Machine, RKEBootstrap and plan Secret of such a machine.
	EtcdRoleLabel         = "rke.cattle.io/etcd-role"
	ControlPlaneRoleLabel = "rke.cattle.io/control-plane-role"
	WorkerRoleLabel       = "rke.cattle.io/worker-role"
	// InitNodeLabel is "true" on the plan Secret of the machine that starts the cluster and that all others join.
	InitNodeLabel = "rke.cattle.io/init-node"
	// InitNodeMachineIDLabel, on an RKEControlPlane, names by machine ID the machine that shall be the init node.
	InitNodeMachineIDLabel = "rke.cattle.io/init-node-machine-id"
	// MachineUIDLabel is set on Nodes; its value is the UID of the Machine.
	MachineUIDLabel = "rke.cattle.io/machine"
	// MachineIDLabel is the SHA-256 of the ID that a registered machine made up for itself, cut to 63 characters.
	MachineIDLabel = "rke.cattle.io/machine-id"
	// MachineNameLabel and MachineNamespaceLabel name the Machine.
	MachineNameLabel      = "rke.cattle.io/machine-name"
	MachineNamespaceLabel = "rke.cattle.io/machine-namespace"
	// MachineTemplateHashLabel is the hash of the machine configuration that a machine template was made from.
	MachineTemplateHashLabel = "rke.cattle.io/machine-template-hash"
	// MachinePoolNameLabel names the machine pool.
	MachinePoolNameLabel = "rke.cattle.io/rke-machine-pool-name"
	// NodeNameLabel is the name that the Node will have.
	NodeNameLabel = "rke.cattle.io/node-name"
	// PlanSecretNameLabel, on a ServiceAccount, names the plan Secret that it may read and write.
	PlanSecretNameLabel = "rke.cattle.io/plan-secret-name"
	// ServiceAccountRoleLabel is ServiceAccountRoleBootstrap or ServiceAccountRolePlan.
	ServiceAccountRoleLabel = "rke.cattle.io/service-account-role"
	// BootstrapNameLabel names the RKEBootstrap.
	BootstrapNameLabel = "rke.cattle.io/rkebootstrap-name"
	// InfraMachine*Labels name the infrastructure machine that a Job makes or removes.
	InfraMachineGroupLabel   = "rke.cattle.io/infra-machine-group"
	InfraMachineVersionLabel = "rke.cattle.io/infra-machine-version"
	InfraMachineKindLabel    = "rke.cattle.io/infra-machine-kind"
	InfraMachineNameLabel    = "rke.cattle.io/infra-machine-name"
	// InfraRemoveLabel is "true" on the Job that removes an infrastructure machine.
	InfraRemoveLabel = "rke.cattle.io/infra-remove"
	// CAPIMachineNameLabel, on an infrastructure machine, names its Machine.
	CAPIMachineNameLabel = "rke.cattle.io/capi-machine-name"
	// OSLabel is the operating system of a machine: "linux" or "windows".
	OSLabel = "cattle.io/os"
	// BackupLabel is "true" on objects that a backup of the hub must hold.
	BackupLabel = "resources.cattle.io/backup"
)

// Values of ServiceAccountRoleLabel.
const (
	ServiceAccountRoleBootstrap = "bootstrap"
	ServiceAccountRolePlan      = "plan"
)

// Annotations of rke.cattle.io on machines' objects: Machine, RKEBootstrap and plan Secret.
const (
	// AddressAnnotation and InternalAddressAnnotation are what the registration command was given.
	AddressAnnotation         = "rke.cattle.io/address"
	InternalAddressAnnotation = "rke.cattle.io/internal-address"
	// DetectedAddressAnnotation is the source address of the machine's route to the hub, as the machine saw it.
	DetectedAddressAnnotation = "rke.cattle.io/detected-address"
	// KubeconfigMovedAnnotation, on a kubeconfig Secret, is the RFC 3339 time at which it was last led to another server, since the one before
	// did not answer.
	KubeconfigMovedAnnotation = "rke.cattle.io/kubeconfig-moved"
	// InfrastructureAddressesAnnotation, on a plan Secret, is a JSON object of those addresses from the machine's infrastructure that its plan
	// was made with.
	InfrastructureAddressesAnnotation = "rke.cattle.io/infrastructure-addresses"
	// LabelsAnnotation is a JSON object, TaintsAnnotation a JSON array of core/v1 taints; the Node starts with them.
	LabelsAnnotation = "rke.cattle.io/labels"
	TaintsAnnotation = "rke.cattle.io/taints"
	// NodeLabelsAnnotation, on a plan Secret, is a JSON object of the labels in the distribution's configuration (node-label) of the plan.
	NodeLabelsAnnotation = "rke.cattle.io/node-labels"
	// CarriedAnnotation, on a Node, lists the labels and taints that were carried there from its machine, as JSON.
	CarriedAnnotation = "rke.cattle.io/carried-from-machine"
	// RegisterFromAnnotation, on a Machine, lets that machine register again without proof, once, from the IP address that it names.
	RegisterFromAnnotation = "rke.cattle.io/register-from"
	// MachineSecretHashAnnotation is the hex SHA-256 of the secret by which a registered machine proves who it is when it comes again.
	MachineSecretHashAnnotation = "rke.cattle.io/machine-secret-hash"
	// JoinURLAnnotation is where other nodes join this one; JoinedToAnnotation is the join URL that this node was given.
	JoinURLAnnotation                = "rke.cattle.io/join-url"
	JoinedToAnnotation               = "rke.cattle.io/joined-to"
	JoinURLAutosetDisabledAnnotation = "rke.cattle.io/join-url-autoset-disabled"
	// PlanLastUpdatedAnnotation and PlanProbesPassedAnnotation are RFC 3339 times: of the last delivery, and of the first moment after it
	// at which all probes were healthy.
	PlanLastUpdatedAnnotation  = "rke.cattle.io/plan-last-updated"
	PlanProbesPassedAnnotation = "rke.cattle.io/plan-probes-passed"
	// AgentLastSeenAnnotation is an RFC 3339 time: when the gateway last saw the agent of a machine with etcd, to some minutes. What the agent
	// has reported counts only as long as the agent is there.
	AgentLastSeenAnnotation = "rke.cattle.io/agent-last-seen"
	// Drain annotations: what is asked for, what was done, and the hooks' hand-over.
	DrainOptionsAnnotation = "rke.cattle.io/drain-options"
	DrainDoneAnnotation    = "rke.cattle.io/drain-done"
	DrainErrorAnnotation   = "rke.cattle.io/drain-error"
	PreDrainAnnotation     = "rke.cattle.io/pre-drain"
	PostDrainAnnotation    = "rke.cattle.io/post-drain"
	UncordonAnnotation     = "rke.cattle.io/uncordon"
	// DrainWaitingAnnotation says what a drain waits for while all is well, DrainBeganAnnotation since when Pods are drained, and
	// DrainCordonedAnnotation is "true" where the hub has cordoned the Node.
	DrainWaitingAnnotation  = "rke.cattle.io/drain-waiting"
	DrainBeganAnnotation    = "rke.cattle.io/drain-began"
	DrainCordonedAnnotation = "rke.cattle.io/drain-cordoned"
	// EtcdForceRemoveAnnotation removes an etcd machine without a safe removal of its member.
	EtcdForceRemoveAnnotation = "rke.cattle.io/etcd-force-remove"
	// HostnameLengthLimitAnnotation limits the names of machines of a pool.
	HostnameLengthLimitAnnotation = "rke.cattle.io/hostname-length-limit"
)

// Annotations of rke.cattle.io on clusters, Secrets and templates.
const (
	// ClusterSpecAnnotation, on an RKEControlPlane, is base64(gzip(JSON)) of the Cluster's spec; snapshots carry it.
	ClusterSpecAnnotation = "rke.cattle.io/cluster-spec"
	// ChosenEndpointsAnnotation, on an RKEControlPlane, lists the control plane endpoints (host:port, comma separated, newest first) that the hub
	// has chosen among machines for Cluster API. They count as none for kubeconfigs, certificates and plans.
	ChosenEndpointsAnnotation = "rke.cattle.io/chosen-endpoints"
	// AuthorizedObjectAnnotation, on a Secret or ConfigMap, lists the Clusters (comma separated) that may use it as a file source.
	AuthorizedObjectAnnotation = "rke.cattle.io/object-authorized-for-clusters"
	// DeleteMissingCustomMachinesAfterAnnotation is a duration, copied from the Cluster to the RKECluster.
	DeleteMissingCustomMachinesAfterAnnotation = "rke.cattle.io/delete-missing-custom-machines-after"
	// BootstrapTokenAnnotation is "true" on the token Secret of a bootstrap ServiceAccount.
	BootstrapTokenAnnotation            = "rke.cattle.io/bootstrap-token"
	BootstrapTokenInvalidatedAnnotation = "rke.cattle.io/bootstrap-token-invalidated"
	LastAccessTimestampAnnotation       = "rke.cattle.io/last-access-timestamp"
	// ClonedFrom*Annotations, on a machine template, name the machine configuration that it was made from.
	ClonedFromGroupVersionAnnotation = "rke.cattle.io/cloned-from-group-version"
	ClonedFromKindAnnotation         = "rke.cattle.io/cloned-from-kind"
	ClonedFromNameAnnotation         = "rke.cattle.io/cloned-from-name"
	// ClonedFromRevisionAnnotation tells from which state of the machine template a copy was made: its UID and generation.
	ClonedFromRevisionAnnotation = "rke.cattle.io/cloned-from-revision"
	// AppliedQuantityAnnotation, on a MachineDeployment, is the quantity of its pool that the hub wrote last.
	AppliedQuantityAnnotation = "rke.cattle.io/applied-quantity"
	// MachineTemplatesAnnotation, on a MachineDeployment, lists the machine templates that the hub made for its pool, as Kind.group/name.
	MachineTemplatesAnnotation = "rke.cattle.io/machine-templates"
	// AppliedSystemAgentUpgraderHashAnnotation is the hash of the agent upgrade that a cluster was given.
	AppliedSystemAgentUpgraderHashAnnotation = "rke.cattle.io/applied-system-agent-upgrader-hash"
	// AuthorizedSecretAnnotation, on a Secret, names the Cluster that may use it.
	AuthorizedSecretAnnotation = "v2prov-secret-authorized-for-cluster"
	// OperationsEnabledAnnotation switches day-2 operations on for an imported cluster.
	OperationsEnabledAnnotation = "rancher.io/operations-enabled"
	// SnapshotNameKey is label and annotation of an ETCDSnapshot.
	SnapshotNameKey = "etcdsnapshot.rke.io/snapshot-name"
)

// Names of provisioning.cattle.io.
const (
	// ManagementClusterNameAnnotation names the management.cattle.io Cluster of a Cluster. It is written before that is created.
	ManagementClusterNameAnnotation = "provisioning.cattle.io/management-cluster-name"
	// ClusterUIDAnnotation is the UID of the Cluster whose objects were made here. A Cluster that was moved or restored has another.
	ClusterUIDAnnotation                 = "provisioning.cattle.io/cluster-uid"
	AdministratedAnnotation              = "provisioning.cattle.io/administrated"
	FleetWorkspaceNameAnnotation         = "provisioning.cattle.io/fleet-workspace-name"
	ExternallyManagedAnnotation          = "provisioning.cattle.io/externally-managed"
	AllowDynamicSchemaDropAnnotation     = "provisioning.cattle.io/allow-dynamic-schema-drop"
	ForceMachineRemoveAnnotation         = "provisioning.cattle.io/force-machine-remove"
	ClusterAutoscalerEnabledAnnotation   = "provisioning.cattle.io/cluster-autoscaler-enabled"
	ClusterAutoscalerPausedAnnotation    = "provisioning.cattle.io/cluster-autoscaler-paused"
	PrimeEnabledAnnotation               = "provisioning.cattle.io/rke2-prime-enabled"
	SyncAnnotation                       = "provisioning.cattle.io/sync"
	SyncBootstrapAnnotation              = "provisioning.cattle.io/sync-bootstrap"
	SyncTargetNamespaceAnnotation        = "provisioning.cattle.io/sync-target-namespace"
	SyncTargetNameAnnotation             = "provisioning.cattle.io/sync-target-name"
	SyncedAtAnnotation                   = "provisioning.cattle.io/synced-at"
	LifecycleClusterGroupLabel           = "plan.cattle.io/cluster-group"
	LifecycleClusterKindLabel            = "plan.cattle.io/cluster-kind"
	LifecycleClusterNameLabel            = "plan.cattle.io/cluster-name"
	LifecycleMachineGroupLabel           = "plan.cattle.io/machine-group"
	LifecycleMachineKindLabel            = "plan.cattle.io/machine-kind"
	LifecycleMachineNameLabel            = "plan.cattle.io/machine-name"
	EtcdRemoveAnnotationFormat           = "etcd.%s.cattle.io/remove"
	EtcdRemovedNodeNameAnnotationFormat  = "etcd.%s.cattle.io/removed-node-name"
	NodeArgsAnnotationFormat             = "%s.io/node-args"
	RKEBootstrapCleanupPreTerminateHook  = "pre-terminate.delete.hook.machine.cluster.x-k8s.io/rke-bootstrap-cleanup"
	RKEBootstrapCleanupPreTerminateOwner = "rke-bootstrap-controller"
)

// Names that tie management Clusters, which have no namespace, to the Clusters they were made for. They are labels of the management
// Cluster, of its namespace and of the ClusterRegistrationToken in it.
const (
	OwnerClusterNamespaceLabel = "provisioning.cattle.io/cluster-namespace"
	OwnerClusterNameLabel      = "provisioning.cattle.io/cluster-name"
)

// The machine request: a Secret of MachineRequestSecretType by which the gateway asks that a machine be made known.
const (
	// MachineRequestDataKey is the key with the headers of the machine's request: a JSON object of string arrays, keys in lower case and
	// without "x-cattle-".
	MachineRequestDataKey = "data"
	// MachineRequestErrorAnnotation, on a machine request, says in words for the machine's owner why it was refused.
	MachineRequestErrorAnnotation = "rke.cattle.io/machine-request-error"
	// MachineRequestPrefix begins the name of a machine request, and of the machine, in front of the first 12 digits of the SHA-256 of the
	// machine's ID.
	MachineRequestPrefix = "custom-"
	// Keys of the JSON object. The gateway puts the hex SHA-256 of the machine's secret in, never the secret itself.
	HeaderID                = "id"
	HeaderRoleEtcd          = "role-etcd"
	HeaderRoleControlPlane  = "role-control-plane"
	HeaderRoleWorker        = "role-worker"
	HeaderNodeName          = "node-name"
	HeaderAddress           = "address"
	HeaderInternalAddress   = "internal-address"
	HeaderDetectedAddress   = "detected-address"
	HeaderLabels            = "labels"
	HeaderTaints            = "taints"
	HeaderMachineSecretHash = "machine-secret-hash"
)

// Types of the Secrets that the hub makes.
const (
	MachinePlanSecretType    = "rke.cattle.io/machine-plan"
	MachineStateSecretType   = "rke.cattle.io/machine-state"
	MachineRequestSecretType = "rke.cattle.io/machine-request"
	BootstrapSecretType      = "rke.cattle.io/bootstrap"
	ClusterStateSecretType   = "rke.cattle.io/cluster-state"
	AuthConfigSecretType     = "rke.cattle.io/auth-config"
)

// ReservedPrefixes begin the labels that only the hub may set on machines' objects and that a machine may therefore not ask for.
var ReservedPrefixes = []string{"rke.cattle.io/", "cluster.x-k8s.io/", "machine.cluster.x-k8s.io/", "plan.cattle.io/", "provisioning.cattle.io/"}
