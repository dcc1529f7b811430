package pool

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	"github.com/drover-dev/drover/hub/nodedriver"
	"github.com/drover-dev/drover/hub/nodedriver/schema"
)

const (
	// defaultNodeStartupTimeout is for pools without nodeStartupTimeout.
	defaultNodeStartupTimeout = 10 * time.Minute
	// minNodeStartupTimeout is the least that Cluster API's webhook for MachineHealthChecks accepts, but for 0.
	minNodeStartupTimeout = 30 * time.Second
	// driverNodeStartupTimeout is for those whose machines a node driver creates. Their infrastructure counts as provisioned only when there
	// is a Node, so that Cluster API's clock runs from the creation of the Machine: until its Pod is started, while the driver has its time,
	// and while the machine joins.
	driverNodeStartupTimeout = nodedriver.CreateTimeout + 5*time.Minute + defaultNodeStartupTimeout
)

// HealthCheck returns the MachineHealthCheck of a pool; nil if its machines are not replaced. It checks the Node only: conditions of the
// Machine also report changes in place, which are no reason for a replacement. started is set in a cluster that was started, whose etcd has
// data.
func HealthCheck(cluster *provisioningv1.Cluster, p *provisioningv1.RKEMachinePool, started bool) *clusterv1.MachineHealthCheck {
	if p.UnhealthyNodeTimeout == nil || p.UnhealthyNodeTimeout.Duration.Duration <= 0 {
		return nil
	}
	startup := defaultNodeStartupTimeout
	if schema.DriverOf(p.MachineConfigKind().GroupKind()) != "" {
		startup = driverNodeStartupTimeout
	}
	if p.NodeStartupTimeout != nil {
		startup = p.NodeStartupTimeout.Duration.Duration
	}
	unhealthy := func(status corev1.ConditionStatus) clusterv1.UnhealthyNodeCondition {
		return clusterv1.UnhealthyNodeCondition{Type: corev1.NodeReady, Status: status,
			TimeoutSeconds: new(seconds(p.UnhealthyNodeTimeout.Duration.Duration))}
	}
	name := Name(cluster.Name, p.Name)
	mhc := &clusterv1.MachineHealthCheck{
		ObjectMeta: meta(cluster, p, name),
		Spec: clusterv1.MachineHealthCheckSpec{
			ClusterName: cluster.Name,
			Selector: metav1.LabelSelector{MatchLabels: map[string]string{
				clusterv1.ClusterNameLabel:           cluster.Name,
				clusterv1.MachineDeploymentNameLabel: name,
			}},
			Checks: clusterv1.MachineHealthCheckChecks{
				NodeStartupTimeoutSeconds: new(seconds(startup)),
				UnhealthyNodeConditions:   []clusterv1.UnhealthyNodeCondition{unhealthy(corev1.ConditionUnknown), unhealthy(corev1.ConditionFalse)},
			},
		},
	}
	mhc.Spec.Remediation.TriggerIf = limits(cluster, p, started)
	return mhc
}

// limits are how many machines may be unhealthy for one to be replaced. Without any, no Node that is ready, as with a broken network
// plugin, would have all members of a healthy etcd replaced one after the other, each before the machine in the place of the one before has
// joined: etcd would be down to one member within minutes. So a minority is the limit, and a single member is not replaced, as with Cluster
// API's own control plane provider. A cluster that was not started has no data to lose. A health check counts the machines of its pool
// only: with one machine in each of three pools, all three may be deleted at once, and leave etcd one after the other.
func limits(
	cluster *provisioningv1.Cluster, p *provisioningv1.RKEMachinePool, started bool,
) (l clusterv1.MachineHealthCheckRemediationTriggerIf) {
	if p.MaxUnhealthy != nil && *p.MaxUnhealthy != "" {
		l.UnhealthyLessThanOrEqualTo = new(intstr.Parse(*p.MaxUnhealthy))
	}
	if p.UnhealthyRange != nil {
		l.UnhealthyInRange = *p.UnhealthyRange
	}
	if l == (clusterv1.MachineHealthCheckRemediationTriggerIf{}) && started && p.EtcdRole {
		l.UnhealthyLessThanOrEqualTo = new(intstr.FromInt32(etcdMinority(cluster)))
	}
	return l
}

// etcdMinority is how many of the etcd machines of all pools are fewer than half.
func etcdMinority(cluster *provisioningv1.Cluster) int32 {
	members := int32(0)
	for i := range cluster.Spec.RKEConfig.MachinePools {
		if p := &cluster.Spec.RKEConfig.MachinePools[i]; p.EtcdRole {
			members += p.DesiredQuantity()
		}
	}
	return (members - 1) / 2
}
