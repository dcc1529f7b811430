package pool

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// Templates are the templates of a pool.
type Templates struct {
	// Bootstrap and Machine are those that the MachineDeployment refers to.
	Bootstrap, Machine clusterv1.ContractVersionedObjectReference
	// Kept are the machine templates that were created for the pool and not deleted yet, including Machine.
	Kept []TemplateRef
}

// MachineDeployment returns the MachineDeployment of a pool.
func MachineDeployment(cluster *provisioningv1.Cluster, p *provisioningv1.RKEMachinePool,
	templates Templates) (*clusterv1.MachineDeployment, error) {
	machineMeta, err := machineMeta(cluster, p)
	if err != nil {
		return nil, err
	}
	name := Name(cluster.Name, p.Name)
	objectMeta := meta(cluster, p, name)
	labels := maps.Clone(p.MachineDeploymentLabels)
	if labels == nil {
		labels = map[string]string{}
	}
	maps.Copy(labels, objectMeta.Labels)
	objectMeta.Labels = labels
	objectMeta.Annotations = deploymentAnnotations(p, templates)

	md := &clusterv1.MachineDeployment{
		ObjectMeta: objectMeta,
		Spec: clusterv1.MachineDeploymentSpec{
			ClusterName: cluster.Name,
			Replicas:    new(p.DesiredQuantity()),
			Rollout:     clusterv1.MachineDeploymentRolloutSpec{Strategy: strategy(p)},
			Selector: metav1.LabelSelector{MatchLabels: map[string]string{
				clusterv1.ClusterNameLabel:           cluster.Name,
				clusterv1.MachineDeploymentNameLabel: name,
			}},
			Template: clusterv1.MachineTemplateSpec{
				ObjectMeta: machineMeta,
				Spec: clusterv1.MachineSpec{
					ClusterName:       cluster.Name,
					Bootstrap:         clusterv1.Bootstrap{ConfigRef: templates.Bootstrap},
					InfrastructureRef: templates.Machine,
					// Volumes of Pods that the drain has left are not detached either.
					Deletion: clusterv1.MachineDeletionSpec{
						NodeDrainTimeoutSeconds: drainTimeout(p), NodeVolumeDetachTimeoutSeconds: drainTimeout(p)},
				},
			},
			Deletion: clusterv1.MachineDeploymentDeletionSpec{Order: clusterv1.OldestMachineSetDeletionOrder},
			Paused:   new(p.Paused),
		},
	}
	if limit := HostnameLimit(cluster, p); limit > 0 {
		md.Spec.MachineNaming.Template = namingTemplate(cluster.Name, p.Name, limit)
	}
	if p.EtcdRole {
		// If all members are unhealthy, the health check must replace them one by one.
		md.Spec.Remediation.MaxInFlight = new(intstr.FromInt32(1))
	}
	return md, nil
}

// machineMeta is the metadata that Cluster API copies to a pool's Machines and RKEBootstraps, in place: a change replaces no machine.
func machineMeta(cluster *provisioningv1.Cluster, p *provisioningv1.RKEMachinePool) (clusterv1.ObjectMeta, error) {
	annotations := map[string]string{}
	if labels := userLabels(p); len(labels) > 0 {
		raw, err := json.Marshal(labels)
		if err != nil {
			return clusterv1.ObjectMeta{}, fmt.Errorf("encoding %s: %w", Field(p.Name, "labels"), err)
		}
		annotations[rkev1.LabelsAnnotation] = string(raw)
	}
	if len(p.Taints) > 0 {
		raw, err := json.Marshal(p.Taints)
		if err != nil {
			return clusterv1.ObjectMeta{}, fmt.Errorf("encoding %s: %w", Field(p.Name, "taints"), err)
		}
		annotations[rkev1.TaintsAnnotation] = string(raw)
	}
	if limit := HostnameLimit(cluster, p); limit > 0 {
		annotations[rkev1.HostnameLengthLimitAnnotation] = strconv.Itoa(limit)
	}
	if !p.DrainBeforeDelete {
		annotations[clusterv1.ExcludeNodeDrainingAnnotation] = "true"
		// Cluster API waits for volumes to be detached whether it has drained the Node or not. Those of Pods that nobody evicts never are.
		annotations[clusterv1.ExcludeWaitForNodeVolumeDetachAnnotation] = "true"
	}
	return clusterv1.ObjectMeta{Labels: machineLabels(cluster, p), Annotations: annotations}, nil
}

func deploymentAnnotations(p *provisioningv1.RKEMachinePool, templates Templates) map[string]string {
	annotations := maps.Clone(p.MachineDeploymentAnnotations)
	if annotations == nil {
		annotations = map[string]string{}
	}
	if p.AutoscalingMinSize != nil && p.AutoscalingMaxSize != nil {
		annotations[clusterv1.AutoscalerMinSizeAnnotation] = strconv.Itoa(int(*p.AutoscalingMinSize))
		annotations[clusterv1.AutoscalerMaxSizeAnnotation] = strconv.Itoa(int(*p.AutoscalingMaxSize))
		describeNodes(annotations, p)
	}
	annotations[rkev1.AppliedQuantityAnnotation] = strconv.Itoa(int(p.DesiredQuantity()))
	if Autoscaled(p) {
		annotations[rkev1.AutoscaledAnnotation] = "true"
	}
	annotations[rkev1.MachineTemplatesAnnotation] = formatRefs(templates.Kept)
	return annotations
}

// The annotations by which the cluster autoscaler knows labels and taints of the Nodes of a pool that has none yet.
const (
	autoscalerLabelsAnnotation = "capacity.cluster-autoscaler.kubernetes.io/labels"
	autoscalerTaintsAnnotation = "capacity.cluster-autoscaler.kubernetes.io/taints"
)

// describeNodes tells the cluster autoscaler which labels and taints the Nodes of a pool will have, unless the user has. Without them, it
// would make machines for Pods that do not tolerate the taints, again and again, and none for Pods that select the labels.
func describeNodes(annotations map[string]string, p *provisioningv1.RKEMachinePool) {
	var labels, taints []string
	own := userLabels(p)
	if _, set := own[rkev1.NodeWorkerRoleLabel]; p.WorkerRole && !set {
		own[rkev1.NodeWorkerRoleLabel] = "true"
	}
	for _, key := range slices.Sorted(maps.Keys(own)) {
		labels = append(labels, key+"="+own[key])
	}
	for _, taint := range p.Taints {
		taints = append(taints, fmt.Sprintf("%s=%s:%s", taint.Key, taint.Value, taint.Effect))
	}
	for key, list := range map[string][]string{autoscalerLabelsAnnotation: labels, autoscalerTaintsAnnotation: taints} {
		if _, set := annotations[key]; !set && len(list) > 0 {
			annotations[key] = strings.Join(list, ",")
		}
	}
}

func strategy(p *provisioningv1.RKEMachinePool) clusterv1.MachineDeploymentRolloutStrategy {
	out := clusterv1.MachineDeploymentRolloutStrategy{Type: clusterv1.RollingUpdateMachineDeploymentStrategyType}
	if p.RollingUpdate != nil {
		out.RollingUpdate.MaxUnavailable = p.RollingUpdate.MaxUnavailable
		out.RollingUpdate.MaxSurge = p.RollingUpdate.MaxSurge
	}
	return out
}

func drainTimeout(p *provisioningv1.RKEMachinePool) *int32 {
	if !p.DrainBeforeDelete || p.DrainBeforeDeleteTimeout == nil {
		return nil
	}
	return new(seconds(p.DrainBeforeDeleteTimeout.Duration.Duration))
}

// seconds rounds up: a timeout must not become 0, which is none.
func seconds(d time.Duration) int32 {
	return int32((d + time.Second - 1) / time.Second)
}

// HostnameLimit is the maximum length of the names of a pool's machines; 0 for the limit of Kubernetes.
func HostnameLimit(cluster *provisioningv1.Cluster, p *provisioningv1.RKEMachinePool) int {
	if p.HostnameLengthLimit > 0 {
		return p.HostnameLengthLimit
	}
	return cluster.Spec.RKEConfig.MachinePoolDefaults.HostnameLengthLimit
}

// namingTemplate is for names of the form cluster-pool-abcde within a limit, for which cluster-pool is cut. Providers name hosts after
// Machines.
func namingTemplate(cluster, pool string, limit int) string {
	const random = len("-abcde")
	prefix := cluster + "-" + pool
	if room := limit - random; len(prefix) > room {
		prefix = strings.TrimRight(prefix[:room], "-")
	}
	return prefix + "-{{ .random }}"
}
