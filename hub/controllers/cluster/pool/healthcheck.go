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
	// driverNodeStartupTimeout is for those whose machines a node driver creates. Their infrastructure counts as provisioned only when there
	// is a Node, so that Cluster API's clock runs from the creation of the Machine: until its Pod is started, while the driver has its time,
	// and while the machine joins.
	driverNodeStartupTimeout = nodedriver.CreateTimeout + 5*time.Minute + defaultNodeStartupTimeout
)

// HealthCheck returns the MachineHealthCheck of a pool; nil if its machines are not replaced. It checks the Node only: conditions of the
// Machine also report changes in place, which are no reason for a replacement.
func HealthCheck(cluster *provisioningv1.Cluster, p *provisioningv1.RKEMachinePool) *clusterv1.MachineHealthCheck {
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
	if p.MaxUnhealthy != nil && *p.MaxUnhealthy != "" {
		mhc.Spec.Remediation.TriggerIf.UnhealthyLessThanOrEqualTo = new(intstr.Parse(*p.MaxUnhealthy))
	}
	if p.UnhealthyRange != nil {
		mhc.Spec.Remediation.TriggerIf.UnhealthyInRange = *p.UnhealthyRange
	}
	return mhc
}
