package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"

	kerrors "k8s.io/apimachinery/pkg/util/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/controllers/cluster/pool"
	"github.com/drover-dev/drover/hub/util/apierrors"
	"github.com/drover-dev/drover/hub/util/cause"
	"github.com/drover-dev/drover/hub/util/objects"
)

// poolScope is what one reconcile has read and found of a machine pool.
type poolScope struct {
	cluster *provisioningv1.Cluster
	spec    *provisioningv1.RKEMachinePool
	// deployment is what exists, or what was just applied; nil if there is none. adopted is true while it is as Rancher has left it.
	deployment *clusterv1.MachineDeployment
	adopted    bool
	// sets are the deployment's MachineSets.
	sets []*clusterv1.MachineSet
	// started is true in a cluster that was started, and deployments are those of all of its pools.
	started     bool
	deployments map[string]*clusterv1.MachineDeployment
	// problem is why the pool differs from the spec.
	problem *cause.Cause
}

// reconcilePools creates the objects of each machine pool, and deletes those of pools that are no longer in the spec, unless the data of
// their servers may have to be taken over first. A pool with a problem stays as it is and does not delay the others. For a Cluster API
// Cluster that is being deleted nothing is created.
func (r *Reconciler) reconcilePools(ctx context.Context, s *scope) error {
	if !s.passedOn || s.capiCluster != nil && !s.capiCluster.DeletionTimestamp.IsZero() {
		return nil
	}
	deployments, err := r.deployments(ctx, s.cluster)
	if err != nil {
		s.unread.pools = true
		return err
	}
	var errs []error
	all := maps.Clone(deployments)
	for i := range s.cluster.Spec.RKEConfig.MachinePools {
		p := &poolScope{cluster: s.cluster, spec: &s.cluster.Spec.RKEConfig.MachinePools[i], started: s.started(), deployments: all}
		s.pools = append(s.pools, p)
		name := pool.Name(s.cluster.Name, p.spec.Name)
		p.deployment = deployments[name]
		delete(deployments, name)
		err := r.reconcilePool(ctx, p)
		switch {
		case apierrors.IsRace(err):
			s.unread.spec, s.unread.pools = true, true // the MachineDeployment is that of the spec of before
		case err != nil:
			p.problem = cause.New("Error", "%s: writing the pool: %v; retrying", pool.Field(p.spec.Name, ""), err)
		}
		errs = append(errs, err)
	}
	for _, deployment := range deployments {
		kept, err := r.keepsServers(ctx, s, deployment)
		if err != nil || kept {
			errs = append(errs, err)
			continue
		}
		if err := r.removePool(ctx, s.cluster, deployment); err != nil {
			errs = append(errs, err)
		}
	}
	return kerrors.NewAggregate(errs)
}

// deployments returns the MachineDeployments of a Cluster by name.
func (r *Reconciler) deployments(ctx context.Context, cluster *provisioningv1.Cluster) (map[string]*clusterv1.MachineDeployment, error) {
	var list clusterv1.MachineDeploymentList
	err := r.Client.List(ctx, &list, client.InNamespace(cluster.Namespace), client.MatchingLabels{rkev1.ClusterNameLabel: cluster.Name},
		client.HasLabels{rkev1.MachinePoolNameLabel})
	if err != nil {
		return nil, fmt.Errorf("listing the cluster's MachineDeployments: %w", err)
	}
	byName := map[string]*clusterv1.MachineDeployment{}
	for i := range list.Items {
		// MachineDeployments of users may have the same labels.
		if md := &list.Items[i]; isOwnedBy(md, cluster) {
			byName[md.Name] = md
		}
	}
	return byName, nil
}

// reconcilePool writes one pool: first the templates, then the MachineDeployment that refers to them; at the end it deletes templates that
// are no longer referred to.
func (r *Reconciler) reconcilePool(ctx context.Context, p *poolScope) error {
	for _, step := range []func(context.Context, *poolScope) error{
		r.checkPool, r.writeBackScale, r.reconcileDeployment, r.reconcileHealthCheck, r.removeUnusedTemplates,
	} {
		err := step(ctx, p)
		if errors.Is(err, errPoolWaits) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// errPoolWaits ends the reconcile of a pool that stays as it is for now. The pool's problem, if it is one, says why.
var errPoolWaits = errors.New("the pool waits")

// checkPool checks what the API server could not validate, and whether the name is taken.
func (r *Reconciler) checkPool(ctx context.Context, p *poolScope) error {
	if faults := pool.Validate(p.cluster, p.spec); len(faults) > 0 {
		p.problem = cause.New("InvalidMachinePool", "%s", strings.Join(faults, "; "))
		return errPoolWaits
	}
	if p.deployment == nil {
		if err := r.checkPoolName(ctx, p); err != nil || p.deployment == nil {
			return err
		}
	}
	if fault := pool.ValidateRoles(p.spec, p.deployment); fault != "" {
		p.problem = cause.New("InvalidMachinePool", "%s", fault)
		return errPoolWaits
	}
	if err := r.checkQuantity(ctx, p); err != nil {
		return err
	}
	return r.readSets(ctx, p)
}

// checkPoolName finds what has the name of a pool without a MachineDeployment. That of Rancher is taken over.
func (r *Reconciler) checkPoolName(ctx context.Context, p *poolScope) error {
	other := &clusterv1.MachineDeployment{}
	key := client.ObjectKey{Namespace: p.cluster.Namespace, Name: pool.Name(p.cluster.Name, p.spec.Name)}
	found, err := objects.Get(ctx, r.Client, key, other)
	switch {
	case found && isPoolOfRancher(other, p):
		p.deployment, p.adopted = other, true
	case found:
		p.problem = cause.New("NameTaken", "%s: MachineDeployment %s exists and does not belong to this pool (Cluster %s); give "+
			"the pool another name",
			pool.Field(p.spec.Name, "name"), key.Name, other.Spec.ClusterName)
		return errPoolWaits
	}
	return err
}

func (r *Reconciler) readSets(ctx context.Context, p *poolScope) error {
	var list clusterv1.MachineSetList
	err := r.Client.List(ctx, &list, client.InNamespace(p.cluster.Namespace),
		client.MatchingLabels{clusterv1.MachineDeploymentNameLabel: p.deployment.Name})
	if err != nil {
		return fmt.Errorf("listing the MachineSets of the pool %s: %w", p.spec.Name, err)
	}
	for i := range list.Items {
		p.sets = append(p.sets, &list.Items[i])
	}
	return nil
}

// reconcileDeployment writes the bootstrap template, the copy of the machine template, and the MachineDeployment.
func (r *Reconciler) reconcileDeployment(ctx context.Context, p *poolScope) error {
	machine, err := r.reconcileMachineTemplate(ctx, p)
	if err != nil {
		return err
	}
	bootstrap, err := r.reconcileBootstrapTemplate(ctx, p)
	if err != nil {
		return err
	}
	templates := pool.Templates{Machine: machine, Bootstrap: bootstrap, Kept: keptTemplates(p, machine)}
	deployment, err := r.applyDeployment(ctx, p, templates)
	if err != nil {
		return err
	}
	taken, err := r.takePool(ctx, p.cluster, deployment)
	if err != nil {
		return err
	}
	if taken {
		if deployment, err = r.applyDeployment(ctx, p, templates); err != nil {
			return err
		}
	}
	p.deployment = deployment
	return nil
}

func (r *Reconciler) applyDeployment(ctx context.Context, p *poolScope, templates pool.Templates) (*clusterv1.MachineDeployment, error) {
	deployment, err := desiredDeployment(p, templates)
	if err != nil {
		return nil, err
	}
	return deployment, r.ssa.Apply(ctx, client.ObjectKeyFromObject(p.cluster), deployment)
}

// reconcileBootstrapTemplate returns the template of the pool's RKEBootstraps, created if there is none with its present content.
func (r *Reconciler) reconcileBootstrapTemplate(ctx context.Context, p *poolScope) (
	ref clusterv1.ContractVersionedObjectReference, _ error) {
	template, err := pool.BootstrapTemplate(p.cluster, p.spec)
	if err != nil {
		return ref, err
	}
	kept, err := r.keepsBootstrapTemplate(ctx, p, template)
	switch {
	case err != nil:
		return ref, err
	case kept:
		return p.deployment.Spec.Template.Spec.Bootstrap.ConfigRef, nil
	}
	if err := r.ssa.Apply(ctx, client.ObjectKeyFromObject(p.cluster), template); err != nil {
		return ref, err
	}
	return pool.Ref(bootstrapTemplateKind, template.Name), nil
}

// reconcileHealthCheck creates the MachineHealthCheck of a pool, or deletes it if the pool has none any more. With limits that are invalid
// it stays as it is.
func (r *Reconciler) reconcileHealthCheck(ctx context.Context, p *poolScope) error {
	check := pool.HealthCheck(p.cluster, p.spec, p.started)
	if check == nil {
		return r.removeHealthCheck(ctx, p.deployment)
	}
	if fault := pool.ValidateLimits(p.spec); fault != "" {
		p.problem = cause.New("InvalidMachinePool", "%s", fault)
		return nil
	}
	return r.ssa.Apply(ctx, client.ObjectKeyFromObject(p.cluster), check)
}

func (r *Reconciler) removeHealthCheck(ctx context.Context, deployment *clusterv1.MachineDeployment) error {
	check := &clusterv1.MachineHealthCheck{}
	found, err := objects.Get(ctx, r.Client, client.ObjectKeyFromObject(deployment), check)
	if err != nil || !found || !check.DeletionTimestamp.IsZero() || check.Labels[rkev1.MachinePoolNameLabel] == "" {
		return err
	}
	return objects.Delete(ctx, r.Client, check)
}

// removePool deletes the objects of a pool. Templates come first: without the MachineDeployment they could not be found. Machines that are
// being deleted need none.
func (r *Reconciler) removePool(ctx context.Context, cluster *provisioningv1.Cluster, deployment *clusterv1.MachineDeployment) error {
	if !deployment.DeletionTimestamp.IsZero() {
		return nil
	}
	// The cache of a hub that has just become the leader may be older than the pool. The newer Cluster causes the next reconcile.
	live := &provisioningv1.Cluster{}
	found, err := objects.Get(ctx, r.Live, client.ObjectKeyFromObject(cluster), live)
	if err != nil || !found || live.Generation != cluster.Generation {
		return err
	}
	ctrl.LoggerFrom(ctx).Info("Deleting machine pool that is no longer in the spec", "MachineDeployment",
		client.ObjectKeyFromObject(deployment))
	if err := r.removeHealthCheck(ctx, deployment); err != nil {
		return err
	}
	for _, ref := range pool.ParseRefs(deployment) {
		if err := r.removeMachineTemplate(ctx, deployment, ref); err != nil {
			return err
		}
	}
	err = r.Client.DeleteAllOf(ctx, &rkev1.RKEBootstrapTemplate{}, client.InNamespace(deployment.Namespace),
		client.MatchingLabels(pool.Labels(deployment.Spec.ClusterName, deployment.Labels[rkev1.MachinePoolNameLabel])))
	if err != nil {
		return fmt.Errorf("deleting the bootstrap templates of MachineDeployment %s: %w", deployment.Name, err)
	}
	return objects.Delete(ctx, r.Client, deployment)
}
