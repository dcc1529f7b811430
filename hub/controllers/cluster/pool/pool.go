// Package pool returns the objects of Cluster API for a machine pool of a Cluster: a MachineDeployment, its templates, and a
// MachineHealthCheck. It is pure: values in, values out.
package pool

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// Name is the name of a pool's MachineDeployment and MachineHealthCheck.
func Name(cluster, pool string) string { return rkev1.SafeConcat(cluster, pool) }

// Field names a pool's field in messages for users.
func Field(pool, field string) string {
	path := fmt.Sprintf("spec.rkeConfig.machinePools[%s]", pool)
	if field == "" {
		return path
	}
	return path + "." + field
}

// Autoscaled reports whether an autoscaler decides how many machines a pool has: it has limits, and no quantity.
func Autoscaled(p *provisioningv1.RKEMachinePool) bool {
	return p.Quantity == nil && p.AutoscalingMinSize != nil && p.AutoscalingMaxSize != nil
}

// meta is the metadata of an object of a pool. The Cluster owns it.
func meta(cluster *provisioningv1.Cluster, p *provisioningv1.RKEMachinePool, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: cluster.Namespace,
		Name:      name,
		Labels:    Labels(cluster.Name, p.Name),
		OwnerReferences: []metav1.OwnerReference{
			*metav1.NewControllerRef(cluster, provisioningv1.GroupVersion.WithKind("Cluster")),
		},
	}
}

// Labels select all objects of a pool.
func Labels(cluster, pool string) map[string]string {
	return map[string]string{
		clusterv1.ClusterNameLabel: cluster,
		rkev1.ClusterNameLabel:     cluster,
		rkev1.MachinePoolNameLabel: pool,
	}
}

// machineLabels are the labels of a pool's machines. Those of the hub override those of the user.
func machineLabels(cluster *provisioningv1.Cluster, p *provisioningv1.RKEMachinePool) map[string]string {
	labels := userLabels(p)
	maps.Copy(labels, Labels(cluster.Name, p.Name))
	labels[clusterv1.MachineDeploymentNameLabel] = Name(cluster.Name, p.Name)
	labels[rkev1.OSLabel] = OS(p)
	for label, has := range map[string]bool{
		rkev1.EtcdRoleLabel:         p.EtcdRole,
		rkev1.ControlPlaneRoleLabel: p.ControlPlaneRole,
		rkev1.WorkerRoleLabel:       p.WorkerRole,
	} {
		if has {
			labels[label] = "true"
		}
	}
	if p.ControlPlaneRole {
		labels[clusterv1.MachineControlPlaneLabel] = ""
	}
	return labels
}

// OS is the operating system of a pool's machines.
func OS(p *provisioningv1.RKEMachinePool) string {
	if p.MachineOS == "" {
		return "linux"
	}
	return p.MachineOS
}

// userLabels are the labels of a pool without those that only the hub may set.
func userLabels(p *provisioningv1.RKEMachinePool) map[string]string {
	labels := map[string]string{}
	for key, value := range p.Labels {
		if !reserved(key) {
			labels[key] = value
		}
	}
	return labels
}

// reserved returns whether only the hub may set a label.
func reserved(key string) bool {
	for _, prefix := range rkev1.ReservedPrefixes {
		if strings.HasPrefix(key, prefix) {
			return true
		}
	}
	return false
}

// hash is the part of a name that depends on the content.
func hash(content any) (string, error) {
	// Maps are encoded in the order of their keys, so that equal contents have equal encodings.
	raw, err := json.Marshal(content)
	if err != nil {
		return "", fmt.Errorf("encoding the content of a template: %w", err)
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])[:8], nil
}
