package rkebootstrap

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// planAccount is the ServiceAccount of the machine's agent. It has no rights in the Kubernetes API: the gateway serves the plan Secret by
// name and owner of the account. Existing tools use the labels.
func planAccount(bootstrap *rkev1.RKEBootstrap, machine *clusterv1.Machine) *corev1.ServiceAccount {
	name := rkev1.PlanSecretName(bootstrap.Name)
	account := &corev1.ServiceAccount{ObjectMeta: ownedMeta(bootstrap, machine, name)}
	account.Labels[rkev1.ServiceAccountRoleLabel] = rkev1.ServiceAccountRolePlan
	account.Labels[rkev1.PlanSecretNameLabel] = name
	return account
}

// applyToken creates the machine's ServiceAccount and a token of it. The ServiceAccount comes first, since the token controller deletes a
// token without one. It owns the token, so that the token is deleted with it, and "clusterctl move" does not move the token, which is
// invalid elsewhere. It returns when the token was created, which the token controller then fills; zero while the cache does not have it.
func (r *Reconciler) applyToken(
	ctx context.Context, bootstrap *rkev1.RKEBootstrap, account *corev1.ServiceAccount,
) (asked time.Time, err error) {
	if err := r.applyOwned(ctx, bootstrap, account); err != nil {
		return time.Time{}, err
	}
	labels := maps.Clone(account.Labels)
	delete(labels, rkev1.ServiceAccountRoleLabel)
	delete(labels, rkev1.PlanSecretNameLabel)
	token := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: account.Namespace, Name: rkev1.PlanTokenSecretName(bootstrap.Name), Labels: labels,
			Annotations:     map[string]string{corev1.ServiceAccountNameKey: account.Name},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(account, corev1.SchemeGroupVersion.WithKind("ServiceAccount"))},
		},
		Type: corev1.SecretTypeServiceAccountToken,
	}
	err = r.ssa.Apply(ctx, client.ObjectKeyFromObject(bootstrap), token)
	return token.CreationTimestamp.Time, err
}

// planSecret is the plan Secret without data: labels and annotations for the controller of the control plane, and the hash of the bootstrap
// token for the gateway, if there is one. Data of other writers are kept when it is applied again.
func planSecret(bootstrap *rkev1.RKEBootstrap, machine *clusterv1.Machine, tokenHash string) *corev1.Secret {
	meta := ownedMeta(bootstrap, machine, rkev1.PlanSecretName(bootstrap.Name))
	// Labels of the RKEBootstrap may come from users, so the controller's own come last.
	labels := maps.Clone(bootstrap.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	// The controller of the control plane elects the init node on the plan Secret; a machine must not.
	delete(labels, rkev1.InitNodeLabel)
	maps.Copy(labels, meta.Labels)
	labels[rkev1.BackupLabel] = "true"
	labels[rkev1.LifecycleClusterGroupLabel] = clusterv1.GroupVersion.Group
	labels[rkev1.LifecycleClusterKindLabel] = "Cluster"
	labels[rkev1.LifecycleClusterNameLabel] = machine.Spec.ClusterName
	labels[rkev1.LifecycleMachineGroupLabel] = clusterv1.GroupVersion.Group
	labels[rkev1.LifecycleMachineKindLabel] = "Machine"
	labels[rkev1.LifecycleMachineNameLabel] = machine.Name
	meta.Labels = labels
	for key, value := range bootstrap.Annotations {
		if strings.HasPrefix(key, "rke.cattle.io/") && !slices.Contains(notCopied, key) {
			metav1.SetMetaDataAnnotation(&meta, key, value)
		}
	}
	if tokenHash != "" {
		metav1.SetMetaDataAnnotation(&meta, rkev1.BootstrapTokenHashAnnotation, tokenHash)
	}
	return &corev1.Secret{ObjectMeta: meta, Type: rkev1.MachinePlanSecretType}
}

// notCopied are annotations of the RKEBootstrap that the plan Secret does not get: what is none of the agent's business, and what other
// controllers write there, which a template's annotations must not overrule.
var notCopied = []string{
	rkev1.MachineSecretHashAnnotation, rkev1.BootstrapTokenHashAnnotation, rkev1.EtcdForceRemoveAnnotation,
	rkev1.JoinURLAnnotation, rkev1.JoinedToAnnotation, rkev1.ReportedJoinAddressAnnotation,
	rkev1.PlanLastUpdatedAnnotation, rkev1.PlanProbesPassedAnnotation,
	rkev1.PlanReplacedAnnotation, rkev1.PlanRestartsAnnotation,
	rkev1.InfrastructureAddressesAnnotation, rkev1.NodeLabelsAnnotation, rkev1.SnapshotChecksumsAnnotation,
	rkev1.AgentLastSeenAnnotation, rkev1.PlanRetryAnnotation,
	rkev1.DrainOptionsAnnotation, rkev1.DrainDoneAnnotation, rkev1.DrainErrorAnnotation,
	rkev1.PreDrainAnnotation, rkev1.PostDrainAnnotation, rkev1.UncordonAnnotation,
	rkev1.DrainWaitingAnnotation, rkev1.DrainBeganAnnotation, rkev1.DrainCordonedAnnotation,
}

// keepsMetadata reports whether no label or annotation of a plan Secret is ever removed.
func keepsMetadata(plan *corev1.Secret) bool {
	for label := range plan.Labels {
		if !slices.Contains(keptLabels, label) {
			return false
		}
	}
	for annotation := range plan.Annotations {
		if annotation != rkev1.BootstrapTokenHashAnnotation {
			return false
		}
	}
	return true
}

// keptLabels are labels of plan Secrets that are never removed: those that each has, and those of the RKEBootstrap of a worker that Cluster
// API and the hub write. The roles of servers are not among them, since the upgrade of agents goes by those, nor are labels of users, which
// they may remove.
var keptLabels = []string{
	clusterv1.ClusterNameLabel, rkev1.ClusterNameLabel, rkev1.MachineNameLabel, rkev1.BootstrapNameLabel, rkev1.BackupLabel,
	rkev1.LifecycleClusterGroupLabel, rkev1.LifecycleClusterKindLabel, rkev1.LifecycleClusterNameLabel,
	rkev1.LifecycleMachineGroupLabel, rkev1.LifecycleMachineKindLabel, rkev1.LifecycleMachineNameLabel,
	clusterv1.MachineDeploymentNameLabel, clusterv1.MachineSetNameLabel, clusterv1.MachineDeploymentUniqueLabel,
	rkev1.MachinePoolNameLabel, rkev1.OSLabel, rkev1.WorkerRoleLabel,
}

// ownedMeta is the metadata of an object that the RKEBootstrap owns.
func ownedMeta(bootstrap *rkev1.RKEBootstrap, machine *clusterv1.Machine, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: bootstrap.Namespace,
		Name:      name,
		Labels: map[string]string{
			rkev1.ClusterNameLabel:     machine.Spec.ClusterName,
			clusterv1.ClusterNameLabel: machine.Spec.ClusterName,
			rkev1.MachineNameLabel:     machine.Name,
			rkev1.BootstrapNameLabel:   bootstrap.Name,
		},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(bootstrap, rkev1.GroupVersion.WithKind("RKEBootstrap"))},
	}
}
