package v1

// ClusterConfiguration is what every node of a cluster is configured from. It is part of the Cluster's spec.rkeConfig and of the
// RKEControlPlane's spec.
//
// +kubebuilder:validation:XValidation:rule=`(has(self.dataDirectories) && has(self.dataDirectories.systemAgent) ? self.dataDirectories.systemAgent : "") == (has(oldSelf.dataDirectories) && has(oldSelf.dataDirectories.systemAgent) ? oldSelf.dataDirectories.systemAgent : "")`,message="dataDirectories.systemAgent cannot be changed: machines already keep their data there"
// +kubebuilder:validation:XValidation:rule=`(has(self.dataDirectories) && has(self.dataDirectories.provisioning) ? self.dataDirectories.provisioning : "") == (has(oldSelf.dataDirectories) && has(oldSelf.dataDirectories.provisioning) ? oldSelf.dataDirectories.provisioning : "")`,message="dataDirectories.provisioning cannot be changed: machines already keep their data there"
// +kubebuilder:validation:XValidation:rule=`(has(self.dataDirectories) && has(self.dataDirectories.k8sDistro) ? self.dataDirectories.k8sDistro : "") == (has(oldSelf.dataDirectories) && has(oldSelf.dataDirectories.k8sDistro) ? oldSelf.dataDirectories.k8sDistro : "")`,message="dataDirectories.k8sDistro cannot be changed: machines already keep their data there"
type ClusterConfiguration struct {
	// UpgradeStrategy tells how many nodes change at a time, and how they are drained first.
	// +optional
	UpgradeStrategy ClusterUpgradeStrategy `json:"upgradeStrategy,omitempty,omitzero"`
	// ChartValues are Helm values by name of the chart that the distribution ships.
	// +optional
	// +nullable
	ChartValues GenericMap `json:"chartValues,omitempty,omitzero"`
	// MachineGlobalConfig goes into the distribution's config.yaml on every node.
	// +optional
	// +nullable
	MachineGlobalConfig GenericMap `json:"machineGlobalConfig,omitempty,omitzero"`
	// MachineSelectorConfig goes into config.yaml of the machines selected; later entries win.
	// +optional
	// +nullable
	MachineSelectorConfig []RKESystemConfig `json:"machineSelectorConfig,omitempty"`
	// MachineSelectorFiles puts files from Secrets and ConfigMaps on the machines selected.
	// +optional
	// +kubebuilder:validation:MaxItems=100
	// +nullable
	MachineSelectorFiles []RKEProvisioningFiles `json:"machineSelectorFiles,omitempty"`
	// AdditionalManifest is YAML that is applied to the cluster.
	// +optional
	// +nullable
	AdditionalManifest string `json:"additionalManifest,omitempty"`
	// Registries tells nodes where images come from.
	// +optional
	// +nullable
	Registries *Registry `json:"registries,omitempty"`
	// ETCD configures snapshots.
	// +optional
	// +nullable
	ETCD *ETCD `json:"etcd,omitempty"`
	// Networking holds what the hub must know about the cluster's network.
	// +optional
	// +nullable
	Networking *Networking `json:"networking,omitempty"`
	// DataDirectories are the folders on the machines; they cannot be changed later.
	// +optional
	DataDirectories DataDirectories `json:"dataDirectories,omitempty,omitzero"`
	// ProvisionGeneration applies everything again and restarts the distribution on all nodes when it is increased.
	// +optional
	ProvisionGeneration int `json:"provisionGeneration,omitempty"`
}

// Networking holds what the hub must know about the cluster's network.
type Networking struct {
	// StackPreference is the address family by which nodes probe themselves; empty means ipv4, or ipv6 where Services have nothing else.
	// +optional
	// +kubebuilder:validation:Enum="";dual;ipv4;ipv6
	StackPreference string `json:"stackPreference,omitempty"`
}

// DataDirectories are absolute paths on the machines; none may lie within another.
//
// +kubebuilder:validation:XValidation:rule=`!has(self.systemAgent) || !has(self.provisioning) || self.systemAgent == "" || self.provisioning == "" || !((self.systemAgent + '/').startsWith(self.provisioning + '/') || (self.provisioning + '/').startsWith(self.systemAgent + '/'))`,message="dataDirectories: systemAgent and provisioning must not lie within one another"
// +kubebuilder:validation:XValidation:rule=`!has(self.systemAgent) || !has(self.k8sDistro) || self.systemAgent == "" || self.k8sDistro == "" || !((self.systemAgent + '/').startsWith(self.k8sDistro + '/') || (self.k8sDistro + '/').startsWith(self.systemAgent + '/'))`,message="dataDirectories: systemAgent and k8sDistro must not lie within one another"
// +kubebuilder:validation:XValidation:rule=`!has(self.provisioning) || !has(self.k8sDistro) || self.provisioning == "" || self.k8sDistro == "" || !((self.provisioning + '/').startsWith(self.k8sDistro + '/') || (self.k8sDistro + '/').startsWith(self.provisioning + '/'))`,message="dataDirectories: provisioning and k8sDistro must not lie within one another"
// +kubebuilder:validation:XValidation:rule=`!has(self.systemAgent) || self.systemAgent == "" || self.systemAgent.matches('^(/[A-Za-z0-9._@+-]+){2,}$')`,message="dataDirectories: systemAgent must be at least two levels deep, such as /data/agent, and may contain only letters, digits and ._@+-"
type DataDirectories struct {
	// SystemAgent is the agent's folder; empty means /var/lib/rancher/agent.
	// +optional
	SystemAgent DataDirectory `json:"systemAgent,omitempty"`
	// Provisioning is for scripts and state of plans; empty means /var/lib/rancher/capr.
	// +optional
	Provisioning DataDirectory `json:"provisioning,omitempty"`
	// K8sDistro is the distribution's folder; empty means /var/lib/rancher/<runtime>.
	// +optional
	K8sDistro DataDirectory `json:"k8sDistro,omitempty"`
}

// DataDirectory is an absolute, clean path: no ".", no "..", no "//", no slash at the end, no variable or glob.
//
// +kubebuilder:validation:MaxLength=256
// +kubebuilder:validation:Pattern=`^$|^(/\.?[A-Za-z0-9_@%+=:,-][A-Za-z0-9._@%+=:,-]*)+$`
type DataDirectory string

// EnvVar is an environment variable of the agent, of installers and of the cluster-agent.
//
// +kubebuilder:validation:XValidation:rule="self.name != 'CATTLE_AGENT_VAR_DIR'",message="name: CATTLE_AGENT_VAR_DIR cannot be set here; use spec.rkeConfig.dataDirectories.systemAgent"
// +kubebuilder:validation:XValidation:rule="!(self.name in ['NO_PROXY', 'no_proxy']) || !has(self.value) || !self.value.matches('[[:space:]]')",message="value: NO_PROXY must not contain white space"
type EnvVar struct {
	// Name of the variable.
	// +kubebuilder:validation:MaxLength=256
	Name string `json:"name"`
	// Value of the variable.
	// +optional
	// +kubebuilder:validation:MaxLength=16384
	Value string `json:"value,omitempty"`
}

// LocalClusterAuthEndpoint lets users reach a cluster's API directly with credentials of the hub.
//
// +kubebuilder:validation:XValidation:rule="!has(self.caCerts) || size(self.caCerts) == 0 || (has(self.fqdn) && size(self.fqdn) > 0)",message="localClusterAuthEndpoint.caCerts is of use only together with localClusterAuthEndpoint.fqdn"
type LocalClusterAuthEndpoint struct {
	// Enabled switches it on.
	// +optional
	Enabled bool `json:"enabled,omitempty"`
	// FQDN is the name of a load balancer in front of the control plane.
	// +optional
	FQDN string `json:"fqdn,omitempty"`
	// CACerts are the PEM certificates to trust for FQDN.
	// +optional
	CACerts string `json:"caCerts,omitempty"`
}
