package cluster

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/util/clusterspec"
)

func managementCluster(cluster *provisioningv1.Cluster, name string) *managementv3.Cluster {
	spec := cluster.Spec
	return &managementv3.Cluster{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: ownerOf(cluster).Labels()},
		Spec: managementv3.ClusterSpec{
			DisplayName:        cluster.Name,
			FleetWorkspaceName: cluster.Namespace,
			DefaultPodSecurityAdmissionConfigurationTemplateName: spec.DefaultPodSecurityAdmissionConfigurationTemplateName,
			EnableNetworkPolicy: spec.EnableNetworkPolicy,
		},
	}
}

// capiMeta is the metadata of the objects of Cluster API, which have the name of the Cluster. passOn are annotations that are copied from
// the Cluster.
func capiMeta(cluster *provisioningv1.Cluster, passOn ...string) metav1.ObjectMeta {
	meta := metav1.ObjectMeta{
		Namespace: cluster.Namespace,
		Name:      cluster.Name,
		Labels:    map[string]string{rkev1.ClusterNameLabel: cluster.Name, clusterv1.ClusterNameLabel: cluster.Name},
		OwnerReferences: []metav1.OwnerReference{
			*metav1.NewControllerRef(cluster, provisioningv1.GroupVersion.WithKind("Cluster")),
		},
	}
	for _, key := range passOn {
		if value, ok := cluster.Annotations[key]; ok {
			metav1.SetMetaDataAnnotation(&meta, key, value)
		}
	}
	return meta
}

func capiCluster(cluster *provisioningv1.Cluster) *clusterv1.Cluster {
	infrastructure := clusterv1.ContractVersionedObjectReference{APIGroup: rkev1.GroupVersion.Group, Kind: "RKECluster", Name: cluster.Name}
	if ref := cluster.Spec.RKEConfig.InfrastructureRef; ref != nil {
		infrastructure = clusterv1.ContractVersionedObjectReference{APIGroup: ref.GroupVersionKind().Group, Kind: ref.Kind, Name: ref.Name}
	}
	return &clusterv1.Cluster{
		ObjectMeta: capiMeta(cluster, rkev1.ClusterAutoscalerEnabledAnnotation, rkev1.ClusterAutoscalerPausedAnnotation),
		Spec: clusterv1.ClusterSpec{
			InfrastructureRef: infrastructure,
			ControlPlaneRef: clusterv1.ContractVersionedObjectReference{APIGroup: rkev1.GroupVersion.Group, Kind: "RKEControlPlane",
				Name: cluster.Name},
		},
	}
}

func infraCluster(cluster *provisioningv1.Cluster) *rkev1.RKECluster {
	return &rkev1.RKECluster{ObjectMeta: capiMeta(cluster, rkev1.DeleteMissingCustomMachinesAfterAnnotation)}
}

// ControlPlane returns the RKEControlPlane of a Cluster, for the controller and for the preview of a change.
func ControlPlane(cluster *provisioningv1.Cluster) (*rkev1.RKEControlPlane, error) {
	encoded, err := clusterspec.Encode(cluster.Spec)
	if err != nil {
		return nil, err
	}
	meta := capiMeta(cluster, rkev1.PrimeEnabledAnnotation, rkev1.RenewCertificatesAnnotation)
	metav1.SetMetaDataAnnotation(&meta, rkev1.ClusterSpecAnnotation, encoded)
	if id, ok := cluster.Labels[rkev1.InitNodeMachineIDLabel]; ok {
		metav1.SetMetaDataLabel(&meta, rkev1.InitNodeMachineIDLabel, id)
	}
	spec, config := cluster.Spec.DeepCopy(), cluster.Spec.RKEConfig.DeepCopy()
	return &rkev1.RKEControlPlane{
		ObjectMeta: meta,
		Spec: rkev1.RKEControlPlaneSpec{
			ClusterConfiguration:                config.ClusterConfiguration,
			AgentEnvVars:                        spec.AgentEnvVars,
			LocalClusterAuthEndpoint:            spec.LocalClusterAuthEndpoint,
			ClusterAgentDeploymentCustomization: spec.ClusterAgentDeploymentCustomization,
			ETCDSnapshotCreate:                  config.ETCDSnapshotCreate,
			ETCDSnapshotRestore:                 config.ETCDSnapshotRestore,
			RotateCertificates:                  config.RotateCertificates,
			RotateEncryptionKeys:                config.RotateEncryptionKeys,
			KubernetesVersion:                   spec.KubernetesVersion,
			ClusterName:                         cluster.Name,
			ManagementClusterName:               cluster.Annotations[rkev1.ManagementClusterNameAnnotation],
		},
	}, nil
}
