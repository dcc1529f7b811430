package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// RKEControlPlane is a cluster's control plane and, since what Drover bootstraps it manages for life, the configuration of all of the
// cluster's machines.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=rkecontrolplanes,scope=Namespaced,shortName=rcp,categories=cluster-api
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.replicas,selectorpath=.status.selector
// +kubebuilder:metadata:labels={"cluster.x-k8s.io/provider=control-plane-drover","cluster.x-k8s.io/v1beta1=v1","cluster.x-k8s.io/v1beta2=v1","clusterctl.cluster.x-k8s.io=","auth.cattle.io/cluster-indexed=true"}
// +kubebuilder:printcolumn:name="Cluster",type=string,JSONPath=`.spec.clusterName`,description="The Cluster it belongs to"
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.spec['version','kubernetesVersion']`,description="Version asked for"
// +kubebuilder:printcolumn:name="Initialized",type=boolean,JSONPath=`.status.initialization.controlPlaneInitialized`,description="Whether the cluster's API was reached"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=='Ready')].status`,description="Whether every machine has what is asked for"
// +kubebuilder:printcolumn:name="Machines",type=integer,JSONPath=`.status.replicas`,description="How many control-plane Machines there are"
// +kubebuilder:printcolumn:name="Available",type=integer,JSONPath=`.status.availableReplicas`,description="How many of them are available"
// +kubebuilder:printcolumn:name="Up-to-date",type=integer,JSONPath=`.status.upToDateReplicas`,description="How many of them have what is asked for"
// +kubebuilder:printcolumn:name="Paused",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=='Paused')].status`,description="Whether the hub leaves it alone"
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=='Ready')].message`,description="What is waited for"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="has(self.spec) || !has(oldSelf.spec)",message="spec cannot be removed"
type RKEControlPlane struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// +optional
	Spec RKEControlPlaneSpec `json:"spec,omitempty"`
	// +optional
	// +kubebuilder:default={"observedGeneration":-1}
	Status RKEControlPlaneStatus `json:"status,omitempty"`
}

// RKEControlPlaneSpec is the configuration of a cluster.
//
// +kubebuilder:validation:XValidation:rule=`!has(self.version) || !has(self.kubernetesVersion) || self.version == "" || self.kubernetesVersion == "" || self.version == self.kubernetesVersion`,message="version and kubernetesVersion are the same thing: set one, or both to the same value"
// +kubebuilder:validation:XValidation:rule=`!has(self.replicas)`,message="replicas is not supported yet: control plane Machines come from MachineDeployments whose template has the label rke.cattle.io/control-plane-role: \"true\"; remove replicas and scale those",fieldPath=".replicas"
// +kubebuilder:validation:XValidation:rule=`!has(self.machineTemplate)`,message="machineTemplate is not supported yet: control plane Machines come from MachineDeployments whose template has the label rke.cattle.io/control-plane-role: \"true\"; remove it",fieldPath=".machineTemplate"
// +kubebuilder:validation:XValidation:rule=`!has(self.rollout)`,message="rollout is not supported yet: Machines are changed in place as upgradeStrategy says, and replaced as their MachineDeployment says; remove it",fieldPath=".rollout"
type RKEControlPlaneSpec struct {
	ClusterConfiguration `json:",inline"`

	// AgentEnvVars are environment variables of the agent, of installers and of the cluster-agent.
	// +optional
	// +kubebuilder:validation:MaxItems=200
	AgentEnvVars []EnvVar `json:"agentEnvVars,omitempty"`
	// ClusterAgentDeploymentCustomization changes how the cluster-agent is deployed.
	// +optional
	// +nullable
	ClusterAgentDeploymentCustomization *AgentDeploymentCustomization `json:"clusterAgentDeploymentCustomization,omitempty"`
	// LocalClusterAuthEndpoint lets users reach the cluster's API directly.
	// +optional
	LocalClusterAuthEndpoint LocalClusterAuthEndpoint `json:"localClusterAuthEndpoint,omitempty,omitzero"`
	// ETCDSnapshotCreate takes a snapshot when its generation changes.
	// +optional
	ETCDSnapshotCreate *ETCDSnapshotCreate `json:"etcdSnapshotCreate,omitempty"`
	// ETCDSnapshotRestore restores a snapshot when it changes.
	// +optional
	ETCDSnapshotRestore *ETCDSnapshotRestore `json:"etcdSnapshotRestore,omitempty"`
	// RotateCertificates makes new certificates when its generation changes.
	// +optional
	RotateCertificates *RotateCertificates `json:"rotateCertificates,omitempty"`
	// RotateEncryptionKeys makes a new key for Secrets at rest when its generation changes.
	// +optional
	RotateEncryptionKeys *RotateEncryptionKeys `json:"rotateEncryptionKeys,omitempty"`
	// KubernetesVersion is the version of the distribution, such as v1.36.3+k3s1.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	KubernetesVersion string `json:"kubernetesVersion,omitempty"`
	// ClusterName is the name of the Cluster.
	// +optional
	ClusterName string `json:"clusterName,omitempty"`
	// ManagementClusterName is the name of the management.cattle.io Cluster.
	// +optional
	ManagementClusterName string `json:"managementClusterName,omitempty"`
	// UnmanagedConfig leaves the configuration on the machines alone: plans install the version, and write no more than a script of the hub.
	// Whoever sets it writes the configuration of each machine, with which it joins its cluster.
	// +optional
	UnmanagedConfig bool `json:"unmanagedConfig,omitempty"`

	RKEControlPlaneContractSpec `json:",inline"`
}

// DesiredVersion is KubernetesVersion, or Version where only that is set.
func (s *RKEControlPlaneSpec) DesiredVersion() string {
	if s.KubernetesVersion != "" {
		return s.KubernetesVersion
	}
	return s.Version
}

// ManagementName is the name of the management Cluster: the one that the Cluster wrote into the spec or, where a user wrote the
// RKEControlPlane, the one that the hub wrote beside it. It is empty until then.
func (c *RKEControlPlane) ManagementName() string {
	if c.Spec.ManagementClusterName != "" {
		return c.Spec.ManagementClusterName
	}
	return c.Annotations[ManagementClusterNameAnnotation]
}

// GetConditions returns the conditions of the status.
func (c *RKEControlPlane) GetConditions() []metav1.Condition { return c.Status.Conditions }

// SetConditions replaces the conditions of the status.
func (c *RKEControlPlane) SetConditions(conditions []metav1.Condition) {
	c.Status.Conditions = conditions
}

// RKEControlPlaneList is a list of RKEControlPlane.
//
// +kubebuilder:object:root=true
type RKEControlPlaneList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	// Items are the objects of the list.
	Items []RKEControlPlane `json:"items"`
}
