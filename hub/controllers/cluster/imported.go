package cluster

import (
	"context"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	"github.com/drover-dev/drover/hub/plan/release"
	"github.com/drover-dev/drover/hub/util/cause"
)

// reconcileImported creates what an agent needs to connect, and no objects of Cluster API: the hub does not manage the machines.
func (r *Reconciler) reconcileImported(ctx context.Context, s *scope) error {
	return s.run(ctx, r.reconcileName, r.reconcileManagement, r.checkImported, r.readKubeconfig)
}

// checkImported reports fields that have no effect on an imported cluster.
func (r *Reconciler) checkImported(_ context.Context, s *scope) error {
	s.partial = append(s.partial, partialProblems(s.cluster.Spec)...)
	if s.cluster.Spec.LocalClusterAuthEndpoint.Enabled {
		s.partial = append(s.partial, cause.New("AuthEndpointNotSupported",
			"spec.localClusterAuthEndpoint.enabled has no effect on an imported cluster, "+
				"whose API server the hub does not configure; remove the field and use the hub"))
	}
	if s.cluster.Spec.KubernetesVersion != "" {
		s.partial = append(s.partial, cause.New("VersionNotManaged", "spec.kubernetesVersion has no effect without spec.rkeConfig: the cluster "+
			"was created elsewhere, and the hub does not upgrade it; remove the field, or, for a cluster that the hub creates, delete this "+
			"Cluster and create it with spec.rkeConfig, which may be {}"))
	}
	return nil
}

// setImported sets the conditions of an imported cluster: it is ready while its API responds through the agent.
func setImported(s *scope) {
	ready := metav1.Condition{Type: provisioningv1.ReadyCondition, Status: metav1.ConditionFalse}
	connected := conditions.Get(s.cluster, provisioningv1.ConnectedCondition)
	switch {
	case s.created != nil:
		ready.Reason, ready.Message = s.created.Reason, s.created.Message
	case connected == nil:
		ready.Reason, ready.Message = "WaitingForAgent", "Waiting for the cluster agent to connect"
	case connected.Status != metav1.ConditionTrue:
		ready.Reason, ready.Message = connected.Reason, connected.Message
	case s.management == nil || s.management.Status.Version == nil:
		ready.Reason, ready.Message = "WaitingForAPI", "Waiting for the API of the cluster to respond through the cluster agent"
	case conditions.IsFalse(s.management, managementv3.APIReachableCondition):
		ready.Reason = "WaitingForAPI"
		ready.Message = conditions.GetMessage(s.management, managementv3.APIReachableCondition)
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

// importedRuntime is the distribution by the build of the version; empty for others than k3s and RKE2.
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
