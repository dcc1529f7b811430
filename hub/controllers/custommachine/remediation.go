package custommachine

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/conditions"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// nodeMissing returns the condition in which Cluster API says that the Node that a Machine had is gone; nil if the Machine has its Node,
// never had one, or is being deleted.
func nodeMissing(machine *clusterv1.Machine) *metav1.Condition {
	c := conditions.Get(machine, clusterv1.MachineNodeHealthyCondition)
	if !machine.DeletionTimestamp.IsZero() || !machine.Status.NodeRef.IsDefined() || c == nil || c.Status != metav1.ConditionFalse {
		return nil
	}
	if c.Reason != clusterv1.MachineNodeDeletedReason && c.Reason != clusterv1.MachineNodeDoesNotExistReason {
		return nil
	}
	return c
}

// missingSince sets the condition NodeMissing of a CustomMachine and returns since when it is true. The time of the Machine's own condition
// is no evidence: a Node that is deleted after it was not ready for long does not change it.
func missingSince(custom *rkev1.CustomMachine, machine *clusterv1.Machine, missing *metav1.Condition, now time.Time) time.Time {
	if missing == nil {
		conditions.Delete(custom, rkev1.NodeMissingCondition)
		return time.Time{}
	}
	conditions.Set(custom, metav1.Condition{Type: rkev1.NodeMissingCondition, Status: metav1.ConditionTrue, Reason: missing.Reason,
		Message: "Node " + machine.Status.NodeRef.Name + " is gone", LastTransitionTime: metav1.NewTime(now)})
	return conditions.Get(custom, rkev1.NodeMissingCondition).LastTransitionTime.Time
}

// reconcileMissingNode deletes the Machine when its Node has been missing for as long as the cluster's owner allows.
func (r *Reconciler) reconcileMissingNode(ctx context.Context, s *scope) (ctrl.Result, error) {
	missing := nodeMissing(s.machine)
	since := missingSince(s.custom, s.machine, missing, r.Now())
	if missing == nil || !s.cluster.DeletionTimestamp.IsZero() || annotations.HasPaused(s.machine) ||
		annotations.HasSkipRemediation(s.machine) {
		return ctrl.Result{}, nil
	}
	timeout, err := r.missingNodeTimeout(ctx, s.cluster)
	if err != nil || timeout == 0 {
		return ctrl.Result{}, err
	}
	if left := since.Add(timeout).Sub(r.Now()); left > 0 {
		return ctrl.Result{RequeueAfter: left}, nil
	}
	exists, err := r.nodeExists(ctx, s.cluster, s.machine)
	if err != nil || exists {
		return ctrl.Result{}, err
	}
	ctrl.LoggerFrom(ctx).Info("Deleting Machine, its Node is missing for too long",
		"node", s.machine.Status.NodeRef.Name, "timeout", timeout.String())
	preconditions := client.Preconditions{UID: &s.machine.UID, ResourceVersion: &s.machine.ResourceVersion}
	if err := r.Client.Delete(ctx, s.machine, preconditions); client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("deleting Machine %s, whose Node is missing: %w", s.machine.Name, err)
	}
	return ctrl.Result{}, nil
}

// missingNodeTimeout is how long a Node may be missing; 0 is for ever, also where the annotation is no duration: a typing error must not
// delete anything.
func (r *Reconciler) missingNodeTimeout(ctx context.Context, cluster *clusterv1.Cluster) (time.Duration, error) {
	ref := cluster.Spec.InfrastructureRef
	if !rkev1.Refers(ref, "RKECluster") {
		return 0, nil
	}
	infra := &rkev1.RKECluster{}
	if err := r.Client.Get(ctx, client.ObjectKey{Namespace: cluster.Namespace, Name: ref.Name}, infra); err != nil {
		return 0, client.IgnoreNotFound(err)
	}
	value := infra.Annotations[rkev1.DeleteMissingCustomMachinesAfterAnnotation]
	if value == "" {
		return 0, nil
	}
	timeout, err := time.ParseDuration(value)
	if err != nil || timeout <= 0 {
		ctrl.LoggerFrom(ctx).Info("Ignoring annotation of the RKECluster: it must be a duration such as 30m or 24h",
			"annotation", rkev1.DeleteMissingCustomMachinesAfterAnnotation, "value", value)
		return 0, nil
	}
	return timeout, nil
}

// nodeExists asks the API of the cluster, past all caches, for the machine's Node: by its name, and by the label that it has when it
// registers again under another name. A cluster that is not connected counts as having it.
func (r *Reconciler) nodeExists(ctx context.Context, cluster *clusterv1.Cluster, machine *clusterv1.Machine) (bool, error) {
	remote, err := r.ClusterCache.GetUncachedClient(ctx, client.ObjectKeyFromObject(cluster))
	if errors.Is(err, clustercache.ErrClusterNotConnected) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("connecting to the API of the cluster: %w", err)
	}
	var nodes corev1.NodeList
	if err := remote.List(ctx, &nodes); err != nil {
		return false, fmt.Errorf("listing the Nodes of the cluster: %w", err)
	}
	for i := range nodes.Items {
		if nodes.Items[i].Name == machine.Status.NodeRef.Name || nodes.Items[i].Labels[rkev1.MachineUIDLabel] == string(machine.UID) {
			return true, nil
		}
	}
	return false, nil
}
