package references

// Others are the fields that look like references to a Secret or ConfigMap and are none, by the end of their path, and why.
//
// Fields of a status are not among them: the hub writes those, and follows none of them.
var Others = map[string]string{
	"registries.configs{}.caBundle":              "holds the certificates themselves",
	"endpointCA":                                 "holds the certificate itself, or the path of a file on the machine",
	"localClusterAuthEndpoint.caCerts":           "holds the certificates themselves",
	"chartValues":                                "is given to charts in the cluster as it is",
	"agentEnvVars[].name":                        "names an environment variable; its value is written beside it",
	"overrideResourceRequirements.claims[].name": "names a claim of a Pod in the cluster",
	"infrastructureRef.name": "names an object of a Cluster API provider; the API group is required, so that " +
		"it can be no Secret",
	"machineConfigRef.name":                                "names a machine template; the API group is required, so that it can be no Secret",
	"etcdSnapshotRestore.name":                             "names an ETCDSnapshot",
	"defaultPodSecurityAdmissionConfigurationTemplateName": "names a template for the admission of Pods",
	"machinePools[].name":                                  "is the pool's own name",
	"displayName":                                          "is text for people",
	"clusterName":                                          "names a Cluster",
	"managementClusterName":                                "names a management Cluster",
	"registrationTokenName":                                "names a ClusterRegistrationToken; the hub writes it",
	"fleetWorkspaceName":                                   "names a namespace of Fleet",
	"user.username":                                        "names a user; the hub writes it",
	"snapshotFile.name":                                    "names a file",
	"clusterRef.name":                                      "names a Cluster in the namespace of the operation",
	"machineName":                                          "names a Machine of that Cluster",
	"args.name":                                            "begins the name of a file, or names an ETCDSnapshot",
	"snapshotFile.nodeName":                                "names a Node",
}
