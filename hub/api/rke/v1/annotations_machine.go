package v1

// Annotations on objects of machines: Machine, RKEBootstrap, plan Secret and Node.
const (
	// AddressAnnotation, on an RKEBootstrap, lists the external IP addresses (comma separated) that the registration command was given.
	AddressAnnotation = "rke.cattle.io/address"
	// InternalAddressAnnotation lists the internal IP addresses that it was given.
	InternalAddressAnnotation = "rke.cattle.io/internal-address"
	// DetectedAddressAnnotation is the source address of the machine's route to the hub, as the machine saw it.
	DetectedAddressAnnotation = "rke.cattle.io/detected-address"
	// InfrastructureAddressesAnnotation, on a plan Secret, is a JSON object of the addresses that the infrastructure reported and that the
	// machine's plan contains. On the RKEBootstrap of a machine of a node driver, it is that of the addresses that the driver has given, and
	// is set once the machine has been created.
	InfrastructureAddressesAnnotation = "rke.cattle.io/infrastructure-addresses"
	// LabelsAnnotation is a JSON object of the labels with which the Node registers.
	LabelsAnnotation = "rke.cattle.io/labels"
	// TaintsAnnotation is a JSON array of core/v1 taints with which the Node registers.
	TaintsAnnotation = "rke.cattle.io/taints"
	// NodeLabelsAnnotation, on a plan Secret, is a JSON object of the labels (node-label) in the configuration of the plan.
	NodeLabelsAnnotation = "rke.cattle.io/node-labels"
	// SyncedFromMachineAnnotation, on a Node, lists as JSON the labels and taints that were synced from its Machine, so that they can be
	// removed again.
	SyncedFromMachineAnnotation = "rke.cattle.io/carried-from-machine"
	// RegisterFromAnnotation, set by users on a Machine, lets the machine register again without proof, once, from the IP address in it.
	RegisterFromAnnotation = "rke.cattle.io/register-from"
	// MachineSecretHashAnnotation is the hex SHA-256 of the secret with which a registered machine proves its identity when it registers
	// again.
	MachineSecretHashAnnotation = "rke.cattle.io/machine-secret-hash"
	// JoinURLAnnotation, on a plan Secret, is the URL under which other machines join this one.
	JoinURLAnnotation = "rke.cattle.io/join-url"
	// JoinedToAnnotation is the join URL in the machine's own plan.
	JoinedToAnnotation = "rke.cattle.io/joined-to"
	// ReportedJoinAddressAnnotation, on a plan Secret, is the address in JoinURLAnnotation, once the Node or the infrastructure has
	// reported it.
	ReportedJoinAddressAnnotation = "rke.cattle.io/reported-join-address"
	// JoinURLAutosetDisabledAnnotation, "true" on a plan Secret, makes the hub leave JoinURLAnnotation to the user.
	JoinURLAutosetDisabledAnnotation = "rke.cattle.io/join-url-autoset-disabled"
	// PlanLastUpdatedAnnotation, on a plan Secret, is the time (RFC 3339) at which the hub last delivered a plan.
	PlanLastUpdatedAnnotation = "rke.cattle.io/plan-last-updated"
	// PlanProbesPassedAnnotation is the first time (RFC 3339) after it at which all probes were healthy.
	PlanProbesPassedAnnotation = "rke.cattle.io/plan-probes-passed"
	// PlanReplacedAnnotation, on a plan Secret, is "restart" or "drain" where the delivered plan has replaced one that does so to the machine
	// and that was not applied. The agent may have begun that one, so it counts until the delivered plan is applied.
	PlanReplacedAnnotation = "rke.cattle.io/plan-replaced"
	// PlanRestartsAnnotation, on the plan Secret of a server, is "true" where the delivered plan starts or restarts the distribution. A plan
	// that does not has it for as long as RKE2 may not have replaced its static Pods after the one before.
	PlanRestartsAnnotation = "rke.cattle.io/plan-restarts"
	// PlanRetryAnnotation, on a plan Secret, is the record of failed attempts at the delivered plan as JSON. It is no key of the data, since
	// agents may write those.
	PlanRetryAnnotation = "rke.cattle.io/plan-retry"
	// AgentLastSeenAnnotation is the time (RFC 3339, to some minutes) at which the gateway last saw the agent of a machine with etcd or a
	// control plane, or of one that reports a certificate that ends soon. Reports of the agent count as evidence only while it is recent.
	AgentLastSeenAnnotation = "rke.cattle.io/agent-last-seen"
	// EtcdForceRemoveAnnotation, set by users on a Machine, skips the safe removal of its etcd member.
	EtcdForceRemoveAnnotation = "rke.cattle.io/etcd-force-remove"
	// RestoringAnnotation, on a Machine, names the restore of an etcd snapshot for which machines of its cluster are stopped. Until it is
	// gone, no health check replaces the Machine, and no etcd member is removed.
	RestoringAnnotation = "rke.cattle.io/restoring"
	// SnapshotChecksumsAnnotation, on a plan Secret, has the checksums of the snapshots that the machine has saved last, as JSON of
	// SnapshotChecksums.
	SnapshotChecksumsAnnotation = "rke.cattle.io/snapshot-checksums"
	// HostnameLengthLimitAnnotation limits the length of machine names of a pool.
	HostnameLengthLimitAnnotation = "rke.cattle.io/hostname-length-limit"
)

// Annotations by which rollout and drain work together, all on the plan Secret.
const (
	// DrainOptionsAnnotation holds the drain options (JSON) and so asks for a drain. The control plane controller writes it.
	DrainOptionsAnnotation = "rke.cattle.io/drain-options"
	// DrainDoneAnnotation repeats the options of the drain that has finished. The drain controller writes it.
	DrainDoneAnnotation = "rke.cattle.io/drain-done"
	// DrainErrorAnnotation says why a drain failed.
	DrainErrorAnnotation = "rke.cattle.io/drain-error"
	// PreDrainAnnotation repeats the options for pre-drain hooks, which copy the value to their own annotation when they have finished.
	PreDrainAnnotation = "rke.cattle.io/pre-drain"
	// PostDrainAnnotation does so for post-drain hooks.
	PostDrainAnnotation = "rke.cattle.io/post-drain"
	// UncordonAnnotation holds the options of the drain after which the Node is to be uncordoned. The control plane controller writes it.
	UncordonAnnotation = "rke.cattle.io/uncordon"
	// DrainWaitingAnnotation says what a running drain waits for.
	DrainWaitingAnnotation = "rke.cattle.io/drain-waiting"
	// DrainBeganAnnotation is a JSON object of the time (RFC 3339) since when Pods are evicted, and of the options with which they are.
	DrainBeganAnnotation = "rke.cattle.io/drain-began"
	// DrainCordonedAnnotation is "true" where the hub cordoned the Node: a Node that a user cordoned stays so. It is on the plan Secret and on
	// the Node.
	DrainCordonedAnnotation = "rke.cattle.io/drain-cordoned"
)

// NodeTakenPreDrainHook, on a Machine, keeps Cluster API from draining and deleting the Node that it names, since that is another Machine's
// by now (Cluster API's pre-drain hook). The value is the name of the Node.
const NodeTakenPreDrainHook = "pre-drain.delete.hook.machine.cluster.x-k8s.io/drover-node-taken"

// Annotations and hooks for the removal of etcd members. The formats take the runtime: k3s or rke2.
const (
	// EtcdRemoveAnnotationFormat, "true" on a Node, asks the distribution to remove the Node's etcd member.
	EtcdRemoveAnnotationFormat = "etcd.%s.cattle.io/remove"
	// EtcdRemovedNodeNameAnnotationFormat, on a Node, is set by the distribution once the member is removed.
	EtcdRemovedNodeNameAnnotationFormat = "etcd.%s.cattle.io/removed-node-name"
	// EtcdMemberNameAnnotationFormat, on a Node, is the name of its etcd member. The distribution removes that member when the Node is
	// deleted.
	EtcdMemberNameAnnotationFormat = "etcd.%s.cattle.io/node-name"
	// RKEBootstrapCleanupPreTerminateHook, on a Machine, holds its deletion until the etcd member is removed (Cluster API's pre-terminate
	// hook).
	RKEBootstrapCleanupPreTerminateHook = "pre-terminate.delete.hook.machine.cluster.x-k8s.io/rke-bootstrap-cleanup"
	// RKEBootstrapCleanupPreTerminateOwner is the value of the hook.
	RKEBootstrapCleanupPreTerminateOwner = "rke-bootstrap-controller"
)
