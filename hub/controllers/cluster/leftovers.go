package cluster

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/controllers/cluster/pool"
	driverschema "github.com/drover-dev/drover/hub/nodedriver/schema"
	"github.com/drover-dev/drover/hub/util/capicontract"
	"github.com/drover-dev/drover/hub/util/cause"
	"github.com/drover-dev/drover/hub/util/objects"
)

// removeMachines deletes Machines whose Cluster API Cluster is gone, and what would create new ones. Cluster API cannot delete them any
// more, since it reads their Cluster first.
func (r *Reconciler) removeMachines(ctx context.Context, s *scope) (*cause.Cause, error) {
	var left []string
	for _, kind := range []struct {
		list      client.ObjectList
		finalizer string
	}{
		{&clusterv1.MachineDeploymentList{}, clusterv1.MachineDeploymentFinalizer},
		{&clusterv1.MachineSetList{}, clusterv1.MachineSetFinalizer},
		{&clusterv1.MachineList{}, clusterv1.MachineFinalizer},
	} {
		if err := r.Live.List(ctx, kind.list, client.InNamespace(s.cluster.Namespace),
			client.MatchingLabels{clusterv1.ClusterNameLabel: s.cluster.Name}); err != nil {
			return nil, fmt.Errorf("listing %T of the cluster: %w", kind.list, err)
		}
		all, err := meta.ExtractList(kind.list)
		if err != nil {
			return nil, fmt.Errorf("reading %T of the cluster: %w", kind.list, err)
		}
		for _, o := range all {
			object := o.(client.Object)
			if err := r.abandon(ctx, object, kind.finalizer); err != nil {
				return nil, err
			}
			left = append(left, object.GetName())
		}
	}
	if len(left) == 0 {
		return nil, nil
	}
	return cause.New("WaitingForMachines", "Waiting for machines without a Cluster to be deleted: %s", names(left)), nil
}

// abandon deletes an object and its finalizer of Cluster API, which cannot finalize it without its Cluster.
func (r *Reconciler) abandon(ctx context.Context, object client.Object, finalizer string) error {
	if object.GetDeletionTimestamp().IsZero() {
		if err := objects.Delete(ctx, r.Client, object); err != nil {
			return err
		}
	}
	patch := client.MergeFrom(object.DeepCopyObject().(client.Object))
	if controllerutil.RemoveFinalizer(object, finalizer) {
		if err := r.Client.Patch(ctx, object, patch, fieldOwner); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("removing the finalizer of %T %s: %w", object, object.GetName(), err)
		}
	}
	return nil
}

// removeProviderObjects deletes what is left of a Cluster of which only a part was created, or whose Cluster API Cluster is gone.
func (r *Reconciler) removeProviderObjects(ctx context.Context, s *scope) (*cause.Cause, error) {
	key := client.ObjectKeyFromObject(s.cluster)
	for kind, object := range map[string]client.Object{"RKEControlPlane": &rkev1.RKEControlPlane{}, "RKECluster": &rkev1.RKECluster{}} {
		found, err := objects.Get(ctx, r.Live, key, object)
		if err != nil {
			return nil, err
		}
		if !found || !mayWrite(object, s.cluster) {
			continue
		}
		if gone, err := r.remove(ctx, key, object); err != nil {
			return nil, err
		} else if !gone {
			return cause.New("WaitingFor"+kind, "Waiting for %s to be deleted", kind), nil
		}
	}
	for _, object := range []client.Object{&rkev1.RKEBootstrap{}, &rkev1.CustomMachine{}, &rkev1.RKEBootstrapTemplate{}} {
		if err := r.Client.DeleteAllOf(ctx, object, client.InNamespace(s.cluster.Namespace),
			client.MatchingLabels{rkev1.ClusterNameLabel: s.cluster.Name}); err != nil {
			return nil, fmt.Errorf("deleting the %T of the cluster: %w", object, err)
		}
	}
	return nil, r.removeClones(ctx, s)
}

// removeClones deletes the copies of machine templates. Those of a provider that a pool used earlier are left to the garbage collector.
func (r *Reconciler) removeClones(ctx context.Context, s *scope) error {
	for i := range s.cluster.Spec.RKEConfig.MachinePools {
		p := &s.cluster.Spec.RKEConfig.MachinePools[i]
		kind := p.MachineConfigKind().GroupKind()
		if driver := driverschema.DriverOf(kind); driver != "" {
			kind = driverschema.TemplateKind(driver).GroupKind()
		}
		apiVersion, err := capicontract.APIVersion(ctx, r.Client, kind)
		if missing, foreign := new(capicontract.NotInstalledError), new(capicontract.NotSupportedError); errors.As(err, &missing) ||
			errors.As(err, &foreign) {
			continue
		}
		if err != nil {
			return err
		}
		if err := r.removeTemplates(ctx, s, apiVersion, kind.Kind, pool.Labels(s.cluster.Name, p.Name)); err != nil {
			return err
		}
	}
	return nil
}

// removeTemplates deletes the templates of a kind that have labels, one by one: what providers grant by Cluster API's contract lacks the
// verb deletecollection.
func (r *Reconciler) removeTemplates(ctx context.Context, s *scope, apiVersion, kind string, labels map[string]string) error {
	list := &metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: apiVersion, Kind: kind + "List"}}
	if err := r.Live.List(ctx, list, client.InNamespace(s.cluster.Namespace), client.MatchingLabels(labels)); err != nil {
		return fmt.Errorf("listing the copies of %s: %w", kind, err)
	}
	for i := range list.Items {
		template := &list.Items[i]
		template.TypeMeta = metav1.TypeMeta{APIVersion: apiVersion, Kind: kind}
		if err := objects.Delete(ctx, r.Client, template); err != nil {
			return err
		}
	}
	return nil
}
