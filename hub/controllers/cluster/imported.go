package cluster

import (
	"context"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	"github.com/drover-dev/drover/hub/release"
)

// reconcileImported makes what an agent needs to connect, and nothing of Cluster API: the machines of an imported cluster are its owner's.
func (r *Reconciler) reconcileImported(ctx context.Context, s *scope) error {
	return s.run(ctx, r.reconcileName, r.reconcileManagement, r.checkImported, r.readKubeconfig)
}

// checkImported looks for fields that cannot have the effect that they are there for.
func (r *Reconciler) checkImported(_ context.Context, s *scope) error {
	s.partial = append(s.partial, partialFaults(s.cluster.Spec)...)
	if s.cluster.Spec.LocalClusterAuthEndpoint.Enabled {
		s.partial = append(s.partial, problem{"AuthEndpointNotSupported", "spec.localClusterAuthEndpoint.enabled has no effect on an imported cluster: the hub does not configure " +
			"its API server; reach it through the hub, and remove the field"})
	}
	if s.cluster.Spec.KubernetesVersion != "" {
		s.partial = append(s.partial, problem{"VersionNotManaged", "spec.kubernetesVersion has no effect on an imported cluster: its owner upgrades it; remove the field"})
	}
	return nil
}

// setImported tells how far an imported cluster is: it is ready while its API answers through the agent.
func setImported(s *scope) {
	ready := metav1.Condition{Type: provisioningv1.ReadyCondition, Status: metav1.ConditionFalse}
	connected := conditions.Get(s.cluster, provisioningv1.ConnectedCondition)
	switch {
	case s.created != nil:
		ready.Reason, ready.Message = s.created.reason, s.created.message
	case connected == nil:
		ready.Reason, ready.Message = "WaitingForAgent", "Waiting for the cluster-agent to connect"
	case connected.Status != metav1.ConditionTrue:
		ready.Reason, ready.Message = connected.Reason, connected.Message
	case s.management == nil || s.management.Status.Version == nil:
		ready.Reason, ready.Message = "WaitingForAPI", "The cluster-agent is connected; waiting for the cluster's API to answer through it"
	default:
		ready.Status, ready.Reason = metav1.ConditionTrue, "Ready"
	}
	conditions.Set(s.cluster, ready)
	s.cluster.Status.Ready = ready.Status == metav1.ConditionTrue

	provisioned := metav1.Condition{Type: provisioningv1.ProvisionedCondition, Status: metav1.ConditionTrue, Reason: "Provisioned"}
	if !s.cluster.Status.Ready && !conditions.IsTrue(s.cluster, provisioningv1.ProvisionedCondition) {
		provisioned.Status, provisioned.Reason, provisioned.Message = metav1.ConditionFalse, ready.Reason, ready.Message
	}
	conditions.Set(s.cluster, provisioned)
}

// importedRuntime is the distribution, as far as the version tells.
func importedRuntime(management *managementv3.Cluster) string {
	if management.Status.Version == nil {
		return ""
	}
	_, build, _ := strings.Cut(management.Status.Version.GitVersion, "+")
	for _, runtime := range []string{release.K3s, release.RKE2} {
		if strings.HasPrefix(build, runtime) {
			return runtime
		}
	}
	return ""
}
