package cluster

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/contract"
	"github.com/drover-dev/drover/hub/controllers/cluster/pool"
)

// removeMachines lets Machines go that were left behind without their Cluster, and what would make new ones. Cluster API cannot remove those
// any more, since it looks their Cluster up first.
func (r *Reconciler) removeMachines(ctx context.Context, s *scope) (*problem, error) {
	var left []string
	for _, kind := range []struct {
		list      client.ObjectList
		finalizer string
	}{
		{&clusterv1.MachineDeploymentList{}, clusterv1.MachineDeploymentFinalizer},
		{&clusterv1.MachineSetList{}, clusterv1.MachineSetFinalizer},
		{&clusterv1.MachineList{}, clusterv1.MachineFinalizer},
	} {
		if err := r.Live.List(ctx, kind.list, client.InNamespace(s.cluster.Namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: s.cluster.Name}); err != nil {
			return nil, fmt.Errorf("listing %T of the cluster: %w", kind.list, err)
		}
		objects, err := meta.ExtractList(kind.list)
		if err != nil {
			return nil, fmt.Errorf("reading %T of the cluster: %w", kind.list, err)
		}
		for _, o := range objects {
			object := o.(client.Object)
			if err := r.letGo(ctx, object, kind.finalizer); err != nil {
				return nil, err
			}
			left = append(left, object.GetName())
		}
	}
	if len(left) == 0 {
		return nil, nil
	}
	return &problem{"WaitingForMachines", fmt.Sprintf("Waiting for machines to be removed that lost their Cluster: %s", names(left))}, nil
}

// letGo deletes an object without what Cluster API would do before.
func (r *Reconciler) letGo(ctx context.Context, object client.Object, finalizer string) error {
	if object.GetDeletionTimestamp().IsZero() {
		if err := r.Client.Delete(ctx, object); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting %T %s: %w", object, object.GetName(), err)
		}
	}
	patch := client.MergeFrom(object.DeepCopyObject().(client.Object))
	if controllerutil.RemoveFinalizer(object, finalizer) {
		if err := r.Client.Patch(ctx, object, patch, fieldOwner); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("letting go of %T %s: %w", object, object.GetName(), err)
		}
	}
	return nil
}

// removeProviderObjects deletes what would be left of a Cluster that came up by half, or whose Machines lost their Cluster.
func (r *Reconciler) removeProviderObjects(ctx context.Context, s *scope) (*problem, error) {
	key := client.ObjectKeyFromObject(s.cluster)
	for kind, object := range map[string]client.Object{"RKEControlPlane": &rkev1.RKEControlPlane{}, "RKECluster": &rkev1.RKECluster{}} {
		gone, err := r.remove(ctx, key, object)
		if err != nil {
			return nil, err
		}
		if !gone {
			return &problem{"WaitingFor" + kind, fmt.Sprintf("Waiting for the %s to be removed", kind)}, nil
		}
	}
	for _, object := range []client.Object{&rkev1.RKEBootstrap{}, &rkev1.CustomMachine{}, &rkev1.RKEBootstrapTemplate{}} {
		if err := r.Client.DeleteAllOf(ctx, object, client.InNamespace(s.cluster.Namespace), client.MatchingLabels{rkev1.ClusterNameLabel: s.cluster.Name}); err != nil {
			return nil, fmt.Errorf("deleting the %T of the cluster: %w", object, err)
		}
	}
	return nil, r.removeClones(ctx, s)
}

// removeClones deletes the copies of machine templates. What a pool was made from before it changed to another provider is left to the
// garbage collector.
func (r *Reconciler) removeClones(ctx context.Context, s *scope) error {
	for _, p := range s.cluster.Spec.RKEConfig.MachinePools {
		kind := p.MachineConfigRef.GroupKind()
		apiVersion, err := contract.APIVersion(ctx, r.Client, kind)
		if missing, foreign := new(contract.NotInstalledError), new(contract.NotKeptError); errors.As(err, &missing) || errors.As(err, &foreign) {
			continue
		}
		if err != nil {
			return err
		}
		template := &unstructured.Unstructured{}
		template.SetAPIVersion(apiVersion)
		template.SetKind(kind.Kind)
		err = r.Client.DeleteAllOf(ctx, template, client.InNamespace(s.cluster.Namespace), client.MatchingLabels(pool.Labels(s.cluster.Name, p.Name)))
		if err != nil {
			return fmt.Errorf("deleting the copies of %s: %w", kind, err)
		}
	}
	return nil
}
