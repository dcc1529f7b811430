package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// RKEControlPlaneTemplate is what a ClusterClass makes RKEControlPlanes from. Version, replicas and the infrastructure of machines come
// from the Cluster's topology.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=rkecontrolplanetemplates,scope=Namespaced,categories=cluster-api
// +kubebuilder:metadata:labels={"cluster.x-k8s.io/provider=control-plane-drover","cluster.x-k8s.io/v1beta1=v1","cluster.x-k8s.io/v1beta2=v1","clusterctl.cluster.x-k8s.io=","auth.cattle.io/cluster-indexed=true"}
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type RKEControlPlaneTemplate struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// +optional
	Spec RKEControlPlaneTemplateSpec `json:"spec,omitempty"`
}

// RKEControlPlaneTemplateSpec holds the template.
type RKEControlPlaneTemplateSpec struct {
	// Template is what is made.
	Template RKEControlPlaneTemplateResource `json:"template"`
}

// RKEControlPlaneTemplateResource is metadata and spec of an RKEControlPlane.
type RKEControlPlaneTemplateResource struct {
	// ObjectMeta holds labels and annotations.
	// +optional
	ObjectMeta clusterv1.ObjectMeta `json:"metadata,omitempty,omitzero"`
	// +optional
	Spec RKEControlPlaneTemplateResourceSpec `json:"spec,omitempty,omitzero"`
}

// RKEControlPlaneTemplateResourceSpec is the part of an RKEControlPlane's spec that clusters of one class share.
//
// +kubebuilder:validation:XValidation:rule=`!has(self.machineTemplate)`,message="machineTemplate is not supported yet: control plane Machines come from MachineDeployments whose template has the label rke.cattle.io/control-plane-role: \"true\"; remove it",fieldPath=".machineTemplate"
// +kubebuilder:validation:XValidation:rule=`!has(self.rollout)`,message="rollout is not supported yet: Machines are changed in place as upgradeStrategy says, and replaced as their MachineDeployment says; remove it",fieldPath=".rollout"
type RKEControlPlaneTemplateResourceSpec struct {
	ClusterConfiguration `json:",inline"`

	// AgentEnvVars are environment variables of the agent, of installers and of the cluster-agent.
	// +optional
	// +kubebuilder:validation:MaxItems=200
	AgentEnvVars []EnvVar `json:"agentEnvVars,omitempty"`
	// LocalClusterAuthEndpoint lets users reach the cluster's API directly.
	// +optional
	LocalClusterAuthEndpoint LocalClusterAuthEndpoint `json:"localClusterAuthEndpoint,omitempty,omitzero"`
	// MachineTemplate is what control-plane Machines are made from.
	// +optional
	MachineTemplate *RKEControlPlaneMachineTemplate `json:"machineTemplate,omitempty"`
	// Rollout is how Machines are changed.
	// +optional
	Rollout RKEControlPlaneRollout `json:"rollout,omitempty,omitzero"`
}

// RKEControlPlaneTemplateList is a list of RKEControlPlaneTemplate.
//
// +kubebuilder:object:root=true
type RKEControlPlaneTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	// Items are the objects of the list.
	Items []RKEControlPlaneTemplate `json:"items"`
}
