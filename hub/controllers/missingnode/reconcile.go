package missingnode

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
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/conditions"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// isMissing tells whether an object is the Machine of a CustomMachine that had a Node, which is gone.
func isMissing(object client.Object) bool {
	machine, ok := object.(*clusterv1.Machine)
	if !ok || !machine.DeletionTimestamp.IsZero() || !machine.Status.NodeRef.IsDefined() {
		return false
	}
	ref := machine.Spec.InfrastructureRef
	return ref.APIGroup == rkev1.GroupVersion.Group && ref.Kind == "CustomMachine" && gone(machine) != nil
}

// gone is the condition in which Cluster API says that the Node is not there; nil if it does not.
func gone(machine *clusterv1.Machine) *metav1.Condition {
	c := conditions.Get(machine, clusterv1.MachineNodeHealthyCondition)
	if c == nil || c.Status != metav1.ConditionFalse {
		return nil
	}
	switch c.Reason {
	case clusterv1.MachineNodeDeletedReason, clusterv1.MachineNodeDoesNotExistReason:
		return c
	}
	return nil
}

// Reconcile deletes one Machine when its time is over.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	machine := &clusterv1.Machine{}
	if err := r.Client.Get(ctx, req.NamespacedName, machine); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	cluster, err := util.GetClusterByName(ctx, r.Client, machine.Namespace, machine.Spec.ClusterName)
	if err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !isMissing(machine) || !cluster.DeletionTimestamp.IsZero() || annotations.IsPaused(cluster, machine) {
		return ctrl.Result{}, nil
	}
	after, err := r.patience(ctx, cluster)
	if err != nil || after == 0 {
		return ctrl.Result{}, err
	}
	if left := gone(machine).LastTransitionTime.Add(after).Sub(r.Now()); left > 0 {
		return ctrl.Result{RequeueAfter: left}, nil
	}
	absent, err := r.isAbsent(ctx, cluster, machine)
	if err != nil || !absent {
		return ctrl.Result{}, err
	}
	ctrl.LoggerFrom(ctx).Info("Deleting a Machine whose Node is gone for long", "node", machine.Status.NodeRef.Name, "after", after.String())
	preconditions := client.Preconditions{UID: &machine.UID, ResourceVersion: &machine.ResourceVersion}
	if err := r.Client.Delete(ctx, machine, preconditions); client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("deleting Machine %s, whose Node is gone: %w", machine.Name, err)
	}
	return ctrl.Result{}, nil
}

// patience is how long a Node may be gone; 0 for ever, also where the annotation is no duration: a mistake must not delete anything.
func (r *Reconciler) patience(ctx context.Context, cluster *clusterv1.Cluster) (time.Duration, error) {
	ref := cluster.Spec.InfrastructureRef
	if ref.APIGroup != rkev1.GroupVersion.Group || ref.Kind != "RKECluster" {
		return 0, nil
	}
	infra := &rkev1.RKECluster{}
	if err := r.Client.Get(ctx, client.ObjectKey{Namespace: cluster.Namespace, Name: ref.Name}, infra); err != nil {
		return 0, client.IgnoreNotFound(err)
	}
	text := infra.Annotations[rkev1.DeleteMissingCustomMachinesAfterAnnotation]
	if text == "" {
		return 0, nil
	}
	after, err := time.ParseDuration(text)
	if err != nil || after <= 0 {
		ctrl.LoggerFrom(ctx).Info("The annotation is no duration, such as 30m or 24h; no Machine is deleted", "annotation", rkev1.DeleteMissingCustomMachinesAfterAnnotation, "value", text)
		return 0, nil
	}
	return after, nil
}

// isAbsent asks the cluster itself, past all caches, whether the machine has no Node.
func (r *Reconciler) isAbsent(ctx context.Context, cluster *clusterv1.Cluster, machine *clusterv1.Machine) (bool, error) {
	remote, err := r.ClusterCache.GetUncachedClient(ctx, client.ObjectKeyFromObject(cluster))
	if errors.Is(err, clustercache.ErrClusterNotConnected) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("connecting to the API of the cluster: %w", err)
	}
	var nodes corev1.NodeList
	if err := remote.List(ctx, &nodes); err != nil {
		return false, fmt.Errorf("listing the Nodes of the cluster: %w", err)
	}
	return !hasNode(nodes.Items, machine), nil
}

// hasNode looks for the machine's Node by its name, and by the label with which it comes when it registers again under another.
func hasNode(nodes []corev1.Node, machine *clusterv1.Machine) bool {
	for i := range nodes {
		if nodes[i].Name == machine.Status.NodeRef.Name || nodes[i].Labels[rkev1.MachineUIDLabel] == string(machine.UID) {
			return true
		}
	}
	return false
}
