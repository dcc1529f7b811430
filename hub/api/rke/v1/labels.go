package v1

// Labels of rke.cattle.io and its neighbours. Selectors of the hub, the gateway and users rely on them.
const (
	// ClusterNameLabel names the Cluster (of provisioning.cattle.io and of Cluster API, which share the name) on every object of the cluster.
	ClusterNameLabel = "rke.cattle.io/cluster-name"
	// EtcdRoleLabel is "true" on the Machine, RKEBootstrap and plan Secret of a machine with a member of etcd.
	EtcdRoleLabel = "rke.cattle.io/etcd-role"
	// ControlPlaneRoleLabel is "true" on the same objects of a machine with an API server.
	ControlPlaneRoleLabel = "rke.cattle.io/control-plane-role"
	// WorkerRoleLabel is "true" on the same objects of a machine that runs workloads.
	WorkerRoleLabel = "rke.cattle.io/worker-role"
	// InitNodeLabel is "true" on the plan Secret of the machine that starts the cluster and that all others join.
	InitNodeLabel = "rke.cattle.io/init-node"
	// InitNodeMachineIDLabel, set by users on a Cluster or an RKEControlPlane, is the machine ID of the machine to use as init node. A cluster
	// that has been started uses another one while that machine does not have its data or is down. So does one that another machine was given
	// the plan to start, before the label was set.
	InitNodeMachineIDLabel = "rke.cattle.io/init-node-machine-id"
	// MachineUIDLabel is set on Nodes; the value is the UID of the Machine.
	MachineUIDLabel = "rke.cattle.io/machine"
	// MachineIDLabel is the SHA-256 of the ID that a registered machine chose, cut to 63 characters.
	MachineIDLabel = "rke.cattle.io/machine-id"
	// MachineNameLabel names the Machine on its plan Secret, ServiceAccounts and machine request.
	MachineNameLabel = "rke.cattle.io/machine-name"
	// MachineNamespaceLabel is the namespace of that Machine.
	MachineNamespaceLabel = "rke.cattle.io/machine-namespace"
	// MachineTemplateHashLabel is the hash of the machine configuration that a machine template was created from.
	MachineTemplateHashLabel = "rke.cattle.io/machine-template-hash"
	// MachinePoolNameLabel names the machine pool on its MachineDeployment and Machines.
	MachinePoolNameLabel = "rke.cattle.io/rke-machine-pool-name"
	// NodeNameLabel, on a plan Secret, is the name of the machine's Node.
	NodeNameLabel = "rke.cattle.io/node-name"
	// PlanSecretNameLabel, on a ServiceAccount, names the plan Secret that it reads and writes through the gateway.
	PlanSecretNameLabel = "rke.cattle.io/plan-secret-name"
	// ServiceAccountRoleLabel, on a ServiceAccount of a machine, is ServiceAccountRolePlan.
	ServiceAccountRoleLabel = "rke.cattle.io/service-account-role"
	// BootstrapNameLabel names the RKEBootstrap on the objects created for it.
	BootstrapNameLabel = "rke.cattle.io/rkebootstrap-name"
	// OSLabel is the operating system of a machine: "linux" or "windows".
	OSLabel = "cattle.io/os"
	// BackupLabel is "true" on Secrets that a backup of the management cluster must contain.
	BackupLabel = "resources.cattle.io/backup"
)

// ServiceAccountRolePlan is the ServiceAccountRoleLabel of the account with whose token the agent reads and writes its plan Secret.
const ServiceAccountRolePlan = "plan"

// Labels on plan Secrets that name the Cluster and the Machine for tools that follow the life of both.
const (
	// LifecycleClusterGroupLabel is the API group of the Cluster: cluster.x-k8s.io.
	LifecycleClusterGroupLabel = "plan.cattle.io/cluster-group"
	// LifecycleClusterKindLabel is the kind of the Cluster.
	LifecycleClusterKindLabel = "plan.cattle.io/cluster-kind"
	// LifecycleClusterNameLabel is the name of the Cluster.
	LifecycleClusterNameLabel = "plan.cattle.io/cluster-name"
	// LifecycleMachineGroupLabel is the API group of the Machine: cluster.x-k8s.io.
	LifecycleMachineGroupLabel = "plan.cattle.io/machine-group"
	// LifecycleMachineKindLabel is the kind of the Machine.
	LifecycleMachineKindLabel = "plan.cattle.io/machine-kind"
	// LifecycleMachineNameLabel is the name of the Machine.
	LifecycleMachineNameLabel = "plan.cattle.io/machine-name"
)

// Labels that tie management Clusters, which have no namespace, to the Clusters they were created for. They stand on the management
// Cluster, on its namespace and on the ClusterRegistrationTokens in it.
const (
	// OwnerClusterNamespaceLabel is the namespace of the Cluster.
	OwnerClusterNamespaceLabel = "provisioning.cattle.io/cluster-namespace"
	// OwnerClusterNameLabel is the name of the Cluster.
	OwnerClusterNameLabel = "provisioning.cattle.io/cluster-name"
)

// NodeWorkerRoleLabel makes kubectl show the role worker of a Node. The distributions label only servers, and a kubelet may not set this
// label: the hub does, with the value "true".
const NodeWorkerRoleLabel = "node-role.kubernetes.io/worker"

// ReservedPrefixes begin the labels that only the hub sets on objects of machines. A machine that asks for one is refused.
var ReservedPrefixes = []string{
	"rke.cattle.io/", "cluster.x-k8s.io/", "machine.cluster.x-k8s.io/", "plan.cattle.io/", "provisioning.cattle.io/",
}
