package machinerequest

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// machineObjects are the objects of a machine. All three have the same name.
type machineObjects struct {
	bootstrap *rkev1.RKEBootstrap
	infra     *rkev1.CustomMachine
	machine   *clusterv1.Machine
}

// newMachine returns the objects of a machine. The labels that the machine requested are on its Machine too, for machineSelectorConfig and
// machineSelectorFiles.
func newMachine(cluster *clusterv1.Cluster, name string, request machineRequest) (machineObjects, error) {
	labels := map[string]string{
		clusterv1.ClusterNameLabel: cluster.Name,
		rkev1.ClusterNameLabel:     cluster.Name,
		rkev1.MachineIDLabel:       rkev1.MachineIDLabelValue(request.id),
		rkev1.OSLabel:              "linux",
	}
	for label, has := range map[string]bool{
		rkev1.EtcdRoleLabel:         request.etcd,
		rkev1.ControlPlaneRoleLabel: request.controlPlane,
		rkev1.WorkerRoleLabel:       request.worker,
	} {
		if has {
			labels[label] = "true"
		}
	}
	if request.controlPlane {
		labels[clusterv1.MachineControlPlaneLabel] = ""
	}
	if request.nodeName != "" {
		labels[rkev1.NodeNameLabel] = request.nodeName
	}
	if os := request.labels[rkev1.OSLabel]; os != "" {
		labels[rkev1.OSLabel] = os
	}
	annotations, err := machineAnnotations(request)
	if err != nil {
		return machineObjects{}, err
	}
	meta := func() metav1.ObjectMeta {
		out := metav1.ObjectMeta{Namespace: cluster.Namespace, Name: name, Labels: maps.Clone(labels), Annotations: maps.Clone(annotations)}
		// If the hub stops before it has created the Machine, these are deleted with the Cluster.
		out.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: cluster.Name, UID: cluster.UID,
		}}
		return out
	}
	ref := func(kind string) clusterv1.ContractVersionedObjectReference {
		return clusterv1.ContractVersionedObjectReference{APIGroup: rkev1.GroupVersion.Group, Kind: kind, Name: name}
	}
	objects := machineObjects{
		bootstrap: &rkev1.RKEBootstrap{ObjectMeta: meta(), Spec: rkev1.RKEBootstrapSpec{ClusterName: cluster.Name}},
		infra:     &rkev1.CustomMachine{ObjectMeta: meta()},
		machine: &clusterv1.Machine{ObjectMeta: meta(), Spec: clusterv1.MachineSpec{
			ClusterName:       cluster.Name,
			Bootstrap:         clusterv1.Bootstrap{ConfigRef: ref("RKEBootstrap")},
			InfrastructureRef: ref("CustomMachine"),
		}},
	}
	for key, value := range request.labels {
		if _, own := labels[key]; !own && !ofClusterAPI(key) {
			objects.machine.Labels[key] = value
		}
	}
	if request.secretHash != "" {
		metav1.SetMetaDataAnnotation(&objects.bootstrap.ObjectMeta, rkev1.MachineSecretHashAnnotation, request.secretHash)
	}
	return objects, nil
}

// ofClusterAPI returns whether controllers of Cluster API use a label; a machine may have it only on its Node.
func ofClusterAPI(key string) bool {
	domain, _, _ := strings.Cut(key, "/")
	return domain == clusterv1.GroupVersion.Group || strings.HasSuffix(domain, "."+clusterv1.GroupVersion.Group)
}

// machineAnnotations are the annotations that plans are rendered from.
func machineAnnotations(request machineRequest) (map[string]string, error) {
	annotations := map[string]string{}
	for key, value := range map[string]string{
		rkev1.AddressAnnotation:         request.address,
		rkev1.InternalAddressAnnotation: request.internalAddress,
		rkev1.DetectedAddressAnnotation: request.detectedAddress,
	} {
		if value != "" {
			annotations[key] = value
		}
	}
	if len(request.labels) > 0 {
		raw, err := json.Marshal(request.labels)
		if err != nil {
			return nil, fmt.Errorf("encoding the labels of the machine: %w", err)
		}
		annotations[rkev1.LabelsAnnotation] = string(raw)
	}
	if len(request.taints) > 0 {
		raw, err := json.Marshal(request.taints)
		if err != nil {
			return nil, fmt.Errorf("encoding the taints of the machine: %w", err)
		}
		annotations[rkev1.TaintsAnnotation] = string(raw)
	}
	return annotations, nil
}
