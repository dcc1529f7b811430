package cluster

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kerrors "k8s.io/apimachinery/pkg/util/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sigs.k8s.io/cluster-api/util/secret"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/util/apierrors"
	"github.com/drover-dev/drover/hub/util/cause"
	"github.com/drover-dev/drover/hub/util/message"
	"github.com/drover-dev/drover/hub/util/objects"
	"github.com/drover-dev/drover/hub/util/ownership"
)

type phase func(context.Context, *scope) error

// reconcileNormal runs the phases. A phase that depends on an earlier one that failed does nothing.
func (r *Reconciler) reconcileNormal(ctx context.Context, s *scope) error {
	if here, err := r.reconcileOrigin(ctx, s); err != nil || !here {
		s.unread = unread{spec: err != nil, controlPlane: err != nil, pools: true, kubeconfig: true}
		return err
	}
	err := s.run(ctx, r.reconcileName, r.reconcileManagement, r.restoreSpec, r.reconcileSpec, r.reconcileClusterAPI, r.checkInfrastructure,
		r.reconcilePools, r.readControlPlane, r.readKubeconfig)
	s.unread.pools = s.unread.pools || err != nil && len(s.pools) == 0
	return err
}

// run runs phases, each whether or not another failed.
func (s *scope) run(ctx context.Context, phases ...phase) error {
	var errs []error
	for _, do := range phases {
		if err := do(ctx, s); err != nil {
			errs = append(errs, err)
		}
	}
	return kerrors.NewAggregate(errs)
}

// reconcileSpec checks what the API server could not validate.
func (r *Reconciler) reconcileSpec(ctx context.Context, s *scope) error {
	sources, err := r.readFileSources(ctx, s)
	if err != nil {
		s.unread.spec, s.unread.pools = true, true
		return err
	}
	s.invalid = append(s.invalid, validate(s.cluster, sources)...)
	s.partial = append(s.partial, partialProblems(s.cluster.Spec)...)
	return nil
}

// readFileSources reads the metadata of the objects that machineSelectorFiles name; those that do not exist are left out.
func (r *Reconciler) readFileSources(ctx context.Context, s *scope) (map[fileSource]metav1.ObjectMeta, error) {
	sources := map[fileSource]metav1.ObjectMeta{}
	for kind, names := range map[string][]string{
		"Secret":    fileSources(s.cluster, func(f rkev1.ProvisioningFileSource) *rkev1.K8sObjectFileSource { return f.Secret }),
		"ConfigMap": fileSources(s.cluster, func(f rkev1.ProvisioningFileSource) *rkev1.K8sObjectFileSource { return f.ConfigMap }),
	} {
		for _, name := range names {
			object := &metav1.PartialObjectMetadata{}
			object.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(kind))
			found, err := objects.Get(ctx, r.Client, client.ObjectKey{Namespace: s.cluster.Namespace, Name: name}, object)
			if err != nil {
				return nil, err
			}
			if found {
				sources[fileSource{kind: kind, name: name}] = object.ObjectMeta
			}
		}
	}
	return sources, nil
}

// reconcileClusterAPI passes the spec on. While the Cluster API Cluster is being deleted, nothing is: its deletion ends when the objects
// that it refers to are gone, and each of them would be created again meanwhile.
func (r *Reconciler) reconcileClusterAPI(ctx context.Context, s *scope) error {
	if s.management == nil || len(s.invalid) > 0 || s.unread.spec {
		return nil
	}
	if s.capiCluster != nil && !s.capiCluster.DeletionTimestamp.IsZero() {
		s.unwritten = cause.New("WaitingForClusterAPI", "Cluster API Cluster %s is being deleted with all its machines; the hub then creates "+
			"another one, without the data. Delete this Cluster if you do not want that", s.capiCluster.Name)
		return nil
	}
	err := r.passOn(ctx, s)
	switch {
	case s.keepsStatus(err):
		s.unread.spec = true
	case err != nil:
		s.unwritten = cause.New("Error", "Writing the objects of Cluster API: %s; retrying", message.Stable(err))
	}
	return err
}

// keepsStatus reports whether an error leaves what is known of the spec: a conflict, after which the next reconcile passes it on, or a
// failure to write once more what was passed on before, as after a start of the hub.
func (s *scope) keepsStatus(err error) bool {
	if err == nil || apierrors.IsRefused(err) && !apierrors.IsEnding(err) {
		return false
	}
	return apierrors.IsRace(err) || apierrors.IsEnding(err) || s.cluster.Generation == s.cluster.Status.ObservedGeneration
}

// passOn writes the objects of Cluster API. The Cluster API Cluster comes first: it becomes the owner of the other two, so that its
// controller deletes them in the right order.
func (r *Reconciler) passOn(ctx context.Context, s *scope) error {
	desired, err := ControlPlane(s.cluster)
	if err != nil {
		return err
	}
	wanted := []client.Object{capiCluster(s.cluster)}
	if s.cluster.Spec.RKEConfig.InfrastructureRef == nil {
		wanted = append(wanted, infraCluster(s.cluster))
	}
	wanted = append(wanted, desired)
	if taken, err := r.checkNames(ctx, s.cluster, wanted); err != nil || taken != nil {
		if taken != nil {
			s.invalid = append(s.invalid, taken)
		}
		return err
	}
	for _, object := range wanted {
		if err := r.ssa.Apply(ctx, client.ObjectKeyFromObject(s.cluster), object); err != nil {
			return err
		}
	}
	if err := r.takeSpec(ctx, s.cluster, desired); err != nil {
		return err
	}
	s.passedOn, s.applied = true, desired.Generation
	return nil
}

// checkInfrastructure reports an infrastructure cluster that the spec names and that cannot be read. Cluster API waits for it to be ready.
func (r *Reconciler) checkInfrastructure(ctx context.Context, s *scope) error {
	ref := s.cluster.Spec.RKEConfig.InfrastructureRef
	if ref == nil || !s.passedOn {
		return nil
	}
	key := client.ObjectKey{Namespace: s.cluster.Namespace, Name: ref.Name}
	_, fault, err := r.referenced(ctx, "spec.rkeConfig.infrastructureRef", key, ref.GroupKind(), "Infrastructure")
	if fault != nil {
		s.partial = append(s.partial, fault)
	}
	return err
}

// readControlPlane reads the object that the Cluster's conditions are copied from.
func (r *Reconciler) readControlPlane(ctx context.Context, s *scope) error {
	controlPlane := &rkev1.RKEControlPlane{}
	found, err := objects.Get(ctx, r.Client, client.ObjectKeyFromObject(s.cluster), controlPlane)
	if found && mayWrite(controlPlane, s.cluster) {
		s.controlPlane = controlPlane
	}
	s.unread.controlPlane = err != nil
	return err
}

// readClusterAPI reads the Cluster API Cluster, which may be paused. One that is not the Cluster's is left out, with what belongs to it.
func (r *Reconciler) readClusterAPI(ctx context.Context, s *scope) (err error) {
	s.capiCluster, s.taken, err = ownership.ClusterAPI(ctx, r.Client, s.cluster)
	return err
}

// readKubeconfig reads the metadata of the kubeconfig Secret.
func (r *Reconciler) readKubeconfig(ctx context.Context, s *scope) error {
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	name := secret.Name(s.cluster.Name, secret.Kubeconfig)
	found, err := objects.Get(ctx, r.Cache, client.ObjectKey{Namespace: s.cluster.Namespace, Name: name}, object)
	if found {
		s.kubeconfigSecret = name
	}
	s.unread.kubeconfig = err != nil
	return err
}
