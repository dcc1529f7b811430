package fieldsupport

// cluster are the fields of a Cluster of provisioning.cattle.io.
var cluster = all(
	acted("kubernetesVersion cloudCredentialSecretName agentEnvVars[].name agentEnvVars[].value redeploySystemAgentGeneration"),
	under("clusterAgentDeploymentCustomization", agentCustomization),
	under("localClusterAuthEndpoint", authEndpoint),
	under("rkeConfig", configuration),
	under("rkeConfig", operations),
	under("rkeConfig.infrastructureRef", reference),
	under("rkeConfig.machinePools[]", machinePool),
	acted("rkeConfig.machinePoolDefaults.hostnameLengthLimit"),
	lines{
		"clusterAPIConfig":                    {warned, "this hub does not take over Clusters of Cluster API by name"},
		"fleetAgentDeploymentCustomization":   {warned, "this hub deploys no Fleet agent"},
		"webhookDeploymentCustomization":      {warned, "this hub deploys no webhook in its clusters"},
		"defaultClusterRoleForProjectMembers": {warned, "this hub has no projects"},
		"enableNetworkPolicy": {warned,
			"this hub has no projects to isolate; create NetworkPolicies in the cluster"},
		"defaultPodSecurityAdmissionConfigurationTemplateName": {refused, "condition RKECluster, PodSecurityTemplateNotSupported"},
	},
)

var machinePool = all(
	acted(`name cloudCredentialSecretName etcdRole controlPlaneRole workerRole quantity autoscalingMinSize autoscalingMaxSize labels taints paused
		drainBeforeDelete drainBeforeDeleteTimeout rollingUpdate.maxUnavailable rollingUpdate.maxSurge machineDeploymentLabels
		machineDeploymentAnnotations nodeStartupTimeout unhealthyNodeTimeout maxUnhealthy unhealthyRange machineOS hostnameLengthLimit`),
	under("machineConfigRef", reference),
	under("userdata", userdata),
	lines{
		"displayName":       {warned, "the field is deprecated"},
		"dynamicSchemaSpec": {warned, "this hub keeps machines when a node driver changes"},
	},
)

// reference are the fields of an ObjectReference.
var reference = all(acted("apiVersion kind namespace name"), lines{
	"uid":             {warned, onlyNames},
	"resourceVersion": {warned, onlyNames},
	"fieldPath":       {warned, onlyNames},
})

const onlyNames = "objects are referred to by apiVersion, kind and name"
