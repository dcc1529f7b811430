// Package plansecrets has what controllers that read plan Secrets share: which Secrets those are, which of them are a cluster's, and to
// whom one belongs.
package plansecrets

import (
	"bytes"
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/annotations"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/util/ownership"
	"github.com/drover-dev/drover/plans"
)

// IsPlanSecret matches every plan Secret.
func IsPlanSecret(object client.Object) bool {
	secret, ok := object.(*corev1.Secret)
	return ok && secret.Type == rkev1.MachinePlanSecretType
}

// HoldOnce has a plan Secret that is kept in memory hold its plan once where the applied plan is the same, as it is most of the time.
func HoldOnce(secret *corev1.Secret) {
	plan := secret.Data[plans.KeyPlan]
	if len(plan) > 0 && bytes.Equal(plan, secret.Data[plans.KeyAppliedPlan]) {
		secret.Data[plans.KeyAppliedPlan] = plan
	}
}

// ByName lists the plan Secrets with the label of a cluster, by their names. They may be the cache's own, and are not to be changed: plan
// Secrets are large. A name and a label prove nothing: see Of.
func ByName(ctx context.Context, from client.Reader, cluster client.ObjectKey) (map[string]*corev1.Secret, error) {
	var secrets corev1.SecretList
	err := from.List(ctx, &secrets, client.InNamespace(cluster.Namespace), client.MatchingLabels{rkev1.ClusterNameLabel: cluster.Name},
		client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("listing the cluster's plan Secrets: %w", err)
	}
	byName := make(map[string]*corev1.Secret, len(secrets.Items))
	for i := range secrets.Items {
		if IsPlanSecret(&secrets.Items[i]) {
			byName[secrets.Items[i].Name] = &secrets.Items[i]
		}
	}
	return byName, nil
}

// Of finds the plan Secret of a machine among those of ByName; nil where there is none. A Secret of that name that was not created for the
// machine is none: it must get no plan, which contains secrets of the cluster, and what it reports is not the agent's.
func Of(bootstrap *rkev1.RKEBootstrap, byName map[string]*corev1.Secret) *corev1.Secret {
	if bootstrap == nil {
		return nil
	}
	secret := byName[rkev1.PlanSecretName(bootstrap.Name)]
	if secret == nil || !bootstrap.Owns(secret) {
		return nil
	}
	return secret
}

// ClusterToPlanSecrets maps a Cluster to those plan Secrets of its machines that match. A list that fails is logged and maps to none.
func ClusterToPlanSecrets(from client.Reader, match func(client.Object) bool) handler.MapFunc {
	return func(ctx context.Context, cluster client.Object) []ctrl.Request {
		secrets, err := ByName(ctx, from, client.ObjectKeyFromObject(cluster))
		if err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "Listing the plan Secrets of a cluster failed", "Cluster", client.ObjectKeyFromObject(cluster))
			return nil
		}
		var requests []ctrl.Request
		for _, secret := range secrets {
			if match(secret) {
				requests = append(requests, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(secret)})
			}
		}
		return requests
	}
}

// ControlPlaneToPlanSecrets maps an RKEControlPlane to those plan Secrets of the machines of its Cluster that match.
func ControlPlaneToPlanSecrets(from client.Reader, match func(client.Object) bool) handler.MapFunc {
	ofCluster := ClusterToPlanSecrets(from, match)
	return func(ctx context.Context, controlPlane client.Object) []ctrl.Request {
		cluster := &clusterv1.Cluster{}
		cluster.Namespace, cluster.Name = controlPlane.GetNamespace(), controlPlane.GetLabels()[clusterv1.ClusterNameLabel]
		if cluster.Name == "" {
			return nil
		}
		return ofCluster(ctx, cluster)
	}
}

// ControlPlanePaused reports whether the RKEControlPlane of a Cluster has the annotation cluster.x-k8s.io/paused.
func ControlPlanePaused(ctx context.Context, from client.Reader, cluster *clusterv1.Cluster) (bool, error) {
	controlPlane, _, err := ownership.ControlPlane(ctx, from, cluster)
	return controlPlane != nil && annotations.HasPaused(controlPlane), err
}

// Owners returns the RKEBootstrap, Machine and Cluster of a plan Secret, each nil where there is none.
func Owners(ctx context.Context, c client.Client, secret *corev1.Secret) (
	*rkev1.RKEBootstrap, *clusterv1.Machine, *clusterv1.Cluster, error,
) {
	bootstrap, machine, err := ownership.PlanOwners(ctx, c, secret)
	if err != nil || machine == nil {
		return bootstrap, nil, nil, err
	}
	cluster, err := util.GetClusterByName(ctx, c, machine.Namespace, machine.Spec.ClusterName)
	if client.IgnoreNotFound(err) != nil {
		return bootstrap, machine, nil, fmt.Errorf("reading the Cluster of Machine %s: %w", machine.Name, err)
	}
	if err != nil {
		return bootstrap, machine, nil, nil
	}
	return bootstrap, machine, cluster, nil
}
