package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// The rules for the name of a Cluster are for new ones. Rancher leaves Clusters with other names, of which a rule would refuse each write,
// and with that the removal of their finalizers.

// Cluster is an RKE2 or k3s cluster that a user wants.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=clusters,scope=Namespaced
// +kubebuilder:subresource:status
// +kubebuilder:metadata:labels={"cluster.x-k8s.io/provider=control-plane-drover","auth.cattle.io/cluster-indexed=true","clusterctl.cluster.x-k8s.io=","clusterctl.cluster.x-k8s.io/move="}
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.spec.kubernetesVersion`,description="Version asked for"
// +kubebuilder:printcolumn:name="Cluster Name",type=string,JSONPath=`.status.clusterName`,description="Name of the management Cluster"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Kubeconfig",type=string,JSONPath=`.status.clientSecretName`,description="Secret with the kubeconfig"
// +kubebuilder:printcolumn:name="Ready",type=boolean,JSONPath=`.status.ready`,description="Whether every machine has what is asked for"
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.conditions[?(@.type=='Ready')].reason`,description="What the cluster is at"
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=='Ready')].message`,description="What is waited for"
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || self.metadata.name.size() <= 63 && self.metadata.name.matches('^[a-z0-9][a-z0-9-]*[a-z0-9]$')",optionalOldSelf=true,message="metadata.name must be 2 to 63 lower-case letters, digits and hyphens, and begin and end with a letter or digit"
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || self.metadata.name != 'local'",optionalOldSelf=true,message="metadata.name: the name local is for the hub's own cluster"
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || !self.metadata.name.matches('^c-[a-z0-9]{5}$') && !self.metadata.name.matches('^c-m-[a-z0-9]{8}$')",optionalOldSelf=true,message="metadata.name: names like c-abcde and c-m-abcdefgh are for management Clusters"
// +kubebuilder:validation:XValidation:rule="(has(self.spec) && has(self.spec.rkeConfig)) == (has(oldSelf.spec) && has(oldSelf.spec.rkeConfig))",message="spec.rkeConfig cannot be added to a cluster or removed from it later",fieldPath=".spec.rkeConfig"
type Cluster struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// +optional
	Spec ClusterSpec `json:"spec,omitempty"`
	// +optional
	// +kubebuilder:default={"observedGeneration":-1}
	Status ClusterStatus `json:"status,omitempty"`
}

// ClusterSpec is what a user wants.
//
// +kubebuilder:validation:XValidation:rule=`!has(self.rkeConfig) || (has(self.kubernetesVersion) && self.kubernetesVersion != "")`,message="spec.kubernetesVersion is required together with spec.rkeConfig",fieldPath=".kubernetesVersion"
type ClusterSpec struct {
	// CloudCredentialSecretName names the Secret with the credential for machines, as "namespace:name" or as a name in the same namespace.
	// +optional
	// +kubebuilder:validation:MaxLength=317
	// +nullable
	CloudCredentialSecretName string `json:"cloudCredentialSecretName,omitempty"`
	// KubernetesVersion is the version of the distribution, such as v1.36.3+k3s1 or v1.36.3+rke2r1.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	KubernetesVersion string `json:"kubernetesVersion,omitempty"`
	// ClusterAPIConfig has no effect: the hub manages Cluster API clusters that it has made itself.
	// +optional
	// +nullable
	ClusterAPIConfig *ClusterAPIConfig `json:"clusterAPIConfig,omitempty"`
	// RKEConfig is the configuration of the cluster. Without it, the cluster is one that was made elsewhere.
	// +optional
	RKEConfig *RKEConfig `json:"rkeConfig,omitempty"`
	// LocalClusterAuthEndpoint lets users reach the cluster's API directly.
	// +optional
	LocalClusterAuthEndpoint rkev1.LocalClusterAuthEndpoint `json:"localClusterAuthEndpoint,omitempty,omitzero"`
	// AgentEnvVars are environment variables of the agent, of installers and of the cluster-agent.
	// +optional
	// +kubebuilder:validation:MaxItems=200
	// +nullable
	AgentEnvVars []rkev1.EnvVar `json:"agentEnvVars,omitempty"`
	// ClusterAgentDeploymentCustomization changes how the cluster-agent is deployed.
	// +optional
	// +nullable
	ClusterAgentDeploymentCustomization *rkev1.AgentDeploymentCustomization `json:"clusterAgentDeploymentCustomization,omitempty"`
	// FleetAgentDeploymentCustomization has no effect: the hub deploys no Fleet agent.
	// +optional
	// +nullable
	FleetAgentDeploymentCustomization *rkev1.AgentDeploymentCustomization `json:"fleetAgentDeploymentCustomization,omitempty"`
	// WebhookDeploymentCustomization has no effect: the hub deploys no webhook in clusters.
	// +optional
	// +nullable
	WebhookDeploymentCustomization *WebhookDeploymentCustomization `json:"webhookDeploymentCustomization,omitempty"`
	// DefaultPodSecurityAdmissionConfigurationTemplateName names a template for the admission of Pods.
	// +optional
	// +nullable
	DefaultPodSecurityAdmissionConfigurationTemplateName string `json:"defaultPodSecurityAdmissionConfigurationTemplateName,omitempty"`
	// DefaultClusterRoleForProjectMembers is deprecated and has no effect.
	// +optional
	// +nullable
	DefaultClusterRoleForProjectMembers string `json:"defaultClusterRoleForProjectMembers,omitempty"`
	// EnableNetworkPolicy has no effect: the hub has no projects.
	// +optional
	// +nullable
	EnableNetworkPolicy *bool `json:"enableNetworkPolicy,omitempty"`
	// RedeploySystemAgentGeneration, when it is increased, upgrades the system-agents of all machines to the version of the hub, as many at a
	// time as rkeConfig.upgradeStrategy allows.
	// +optional
	RedeploySystemAgentGeneration int64 `json:"redeploySystemAgentGeneration,omitempty"`
}

// ClusterAPIConfig refers to a Cluster API cluster that somebody else made.
type ClusterAPIConfig struct {
	// ClusterName is its name in the same namespace.
	// +optional
	ClusterName string `json:"clusterName,omitempty"`
}

// ClusterStatus is what the hub found.
type ClusterStatus struct {
	// Conditions: Created, RKECluster, MachinePoolsReady, Provisioned, Updated, Reconciling, Ready, Connected, AgentDeployed, Paused,
	// SystemAgentsUpgraded, and Removed while it is deleted.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Ready is true while every machine has what is asked for.
	// +optional
	Ready bool `json:"ready"`
	// ClusterName is the name of the management Cluster.
	// +optional
	ClusterName string `json:"clusterName,omitempty"`
	// FleetWorkspaceName is the namespace of the Fleet Cluster.
	// +optional
	FleetWorkspaceName string `json:"fleetWorkspaceName,omitempty"`
	// ClientSecretName names the Secret with the kubeconfig.
	// +optional
	ClientSecretName string `json:"clientSecretName,omitempty"`
	// AgentDeployed is true once the cluster-agent has connected for the first time.
	// +optional
	AgentDeployed bool `json:"agentDeployed,omitempty"`
	// ObservedGeneration is the generation of the spec that this status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// GetConditions returns the conditions of the status.
func (c *Cluster) GetConditions() []metav1.Condition { return c.Status.Conditions }

// SetConditions replaces the conditions of the status.
func (c *Cluster) SetConditions(conditions []metav1.Condition) { c.Status.Conditions = conditions }

// ClusterList is a list of Cluster.
//
// +kubebuilder:object:root=true
type ClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	// Items are the objects of the list.
	Items []Cluster `json:"items"`
}
