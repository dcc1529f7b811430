package v1

// The machine request: a Secret of MachineRequestSecretType with which the gateway asks the hub to create the objects of a custom machine.
const (
	// MachineRequestDataKey is the key with the headers of the machine's request: a JSON object of string arrays, keys in lower case and
	// without "x-cattle-".
	MachineRequestDataKey = "data"
	// MachineRequestErrorAnnotation, on a machine request, says why it was refused. The machine gets the text as answer.
	MachineRequestErrorAnnotation = "rke.cattle.io/machine-request-error"
	// MachineRequestWaitingAnnotation, on a machine request, says why there is no Machine yet: the API server does not take the objects of
	// the machine, or earlier ones are being deleted. The machine gets it with the answer that it is to come again.
	MachineRequestWaitingAnnotation = "rke.cattle.io/machine-request-waiting"
	// MachineRequestPrefix begins the name of a machine request and of its Machine. The first 12 digits of the SHA-256 of the machine's ID
	// follow.
	MachineRequestPrefix = "custom-"
)

// Keys of the JSON object in a machine request.
const (
	// HeaderID is the ID that the machine chose.
	HeaderID = "id"
	// HeaderRoleEtcd is "true" for the etcd role.
	HeaderRoleEtcd = "role-etcd"
	// HeaderRoleControlPlane is "true" for the control plane role.
	HeaderRoleControlPlane = "role-control-plane"
	// HeaderRoleWorker is "true" for the worker role.
	HeaderRoleWorker = "role-worker"
	// HeaderNodeName is the name of the Node.
	HeaderNodeName = "node-name"
	// HeaderAddress is an external IP address.
	HeaderAddress = "address"
	// HeaderInternalAddress is an internal IP address.
	HeaderInternalAddress = "internal-address"
	// HeaderDetectedAddress is the source address of the machine's route to the hub.
	HeaderDetectedAddress = "detected-address"
	// HeaderLabels are labels of the Node as key=value, comma separated.
	HeaderLabels = "labels"
	// HeaderTaints are taints of the Node as key=value:effect, comma separated.
	HeaderTaints = "taints"
	// HeaderMachineSecretHash is the hex SHA-256 of the machine's secret. The gateway writes it in place of the secret.
	HeaderMachineSecretHash = "machine-secret-hash"
)

// Types of the Secrets that the hub creates.
const (
	// MachinePlanSecretType is of plan Secrets, one per machine.
	MachinePlanSecretType = "rke.cattle.io/machine-plan"
	// MachineStateSecretType is of the state that a node driver keeps of a machine.
	MachineStateSecretType = "rke.cattle.io/machine-state"
	// MachineRequestSecretType is of machine requests.
	MachineRequestSecretType = "rke.cattle.io/machine-request"
	// BootstrapSecretType is of bootstrap data.
	BootstrapSecretType = "rke.cattle.io/bootstrap"
	// ClusterStateSecretType is of the join tokens of a cluster.
	ClusterStateSecretType = "rke.cattle.io/cluster-state"
	// AuthConfigSecretType is of credentials for a registry, which users create.
	AuthConfigSecretType = "rke.cattle.io/auth-config"
)
