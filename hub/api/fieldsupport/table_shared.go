package fieldsupport

// configuration are the fields of a ClusterConfiguration, which a Cluster and an RKEControlPlane have.
var configuration = all(
	acted(`chartValues machineGlobalConfig machineSelectorConfig[].machineLabelSelector machineSelectorConfig[].config additionalManifest
		machineSelectorFiles[].machineLabelSelector networking.stackPreference provisionGeneration
		upgradeStrategy.controlPlaneConcurrency upgradeStrategy.workerConcurrency
		dataDirectories.systemAgent dataDirectories.provisioning dataDirectories.k8sDistro
		registries.mirrors[].endpoint registries.mirrors[].rewrite registries.configs[].authConfigSecretName
		registries.configs[].tlsSecretName registries.configs[].caBundle registries.configs[].insecureSkipVerify
		etcd.disableSnapshots etcd.snapshotScheduleCron etcd.snapshotRetention`),
	under("upgradeStrategy.controlPlaneDrainOptions", drainOptions),
	under("upgradeStrategy.workerDrainOptions", drainOptions),
	under("machineSelectorFiles[].fileSources[].secret", fileSource),
	under("machineSelectorFiles[].fileSources[].configMap", fileSource),
	under("etcd.s3", acted("endpoint endpointCA skipSSLVerify bucket region cloudCredentialName folder retention")),
)

var (
	drainOptions = acted(`enabled force ignoreDaemonSets ignoreErrors deleteEmptyDirData disableEviction gracePeriod timeout
		skipWaitForDeleteTimeoutSeconds preDrainHooks[].annotation postDrainHooks[].annotation`)
	fileSource         = acted("name optional defaultPermissions items[].key items[].path items[].dynamic items[].permissions items[].hash")
	authEndpoint       = acted("enabled fqdn caCerts")
	endpoint           = acted("host port")
	userdata           = acted("inlineUserdata format")
	agentCustomization = acted(`appendTolerations overrideAffinity overrideResourceRequirements
		schedulingCustomization.priorityClass.value schedulingCustomization.priorityClass.preemptionPolicy
		schedulingCustomization.podDisruptionBudget.minAvailable schedulingCustomization.podDisruptionBudget.maxUnavailable`)
)

// operations are done once when a field changes.
var operations = acted(`etcdSnapshotCreate.generation rotateCertificates.generation rotateCertificates.services
	etcdSnapshotRestore.name etcdSnapshotRestore.generation etcdSnapshotRestore.restoreRKEConfig rotateEncryptionKeys.generation`)

// controlPlane are the fields of an RKEControlPlane.
var controlPlane = all(
	acted("kubernetesVersion version clusterName managementClusterName unmanagedConfig agentEnvVars[].name agentEnvVars[].value"),
	under("clusterAgentDeploymentCustomization", agentCustomization),
	under("localClusterAuthEndpoint", authEndpoint),
	under("controlPlaneEndpoint", endpoint),
	configuration, operations,
	lines{
		"replicas":        {warned, noMachines},
		"machineTemplate": {warned, noMachines},
		"rollout":         {warned, noMachines},
	},
)

const noMachines = "this hub makes no control-plane Machines of its own; they come from machine pools, MachineDeployments or registration"
