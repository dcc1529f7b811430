package cluster

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kerrors "k8s.io/apimachinery/pkg/util/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/secret"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

type phase func(context.Context, *scope) error

// reconcileNormal runs the phases. One that needs what an earlier one could not make does nothing.
func (r *Reconciler) reconcileNormal(ctx context.Context, s *scope) error {
	if here, err := r.reconcileOrigin(ctx, s); err != nil || !here {
		s.unread = unread{spec: err != nil, controlPlane: err != nil, pools: true, kubeconfig: true}
		return err
	}
	err := s.run(ctx, r.reconcileName, r.reconcileManagement, r.reconcileSpec, r.reconcileClusterAPI, r.checkInfrastructure, r.reconcilePools,
		r.readControlPlane, r.readKubeconfig)
	s.unread.pools = s.unread.pools || err != nil && len(s.pools) == 0
	return err
}

// run runs phases and adds their errors up.
func (s *scope) run(ctx context.Context, phases ...phase) error {
	var errs []error
	for _, do := range phases {
		if err := do(ctx, s); err != nil {
			errs = append(errs, err)
		}
	}
	return kerrors.NewAggregate(errs)
}

// reconcileSpec looks for faults that the API server could not see.
func (r *Reconciler) reconcileSpec(ctx context.Context, s *scope) error {
	sources, err := r.readFileSources(ctx, s)
	if err != nil {
		s.unread.spec, s.unread.pools = true, true
		return err
	}
	s.invalid = append(s.invalid, validate(s.cluster, sources)...)
	s.partial = append(s.partial, partialFaults(s.cluster.Spec)...)
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
			err := r.Client.Get(ctx, types.NamespacedName{Namespace: s.cluster.Namespace, Name: name}, object)
			if apierrors.IsNotFound(err) {
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("reading %s %s: %w", kind, name, err)
			}
			sources[fileSource{kind: kind, name: name}] = object.ObjectMeta
		}
	}
	return sources, nil
}

// reconcileClusterAPI hands the spec on. The Cluster API Cluster comes first: it becomes the owner of the other two, so that its
// controller takes them away in the right order.
func (r *Reconciler) reconcileClusterAPI(ctx context.Context, s *scope) error {
	if s.management == nil || len(s.invalid) > 0 || s.unread.spec {
		return nil
	}
	desired, err := controlPlane(s.cluster)
	if err != nil {
		return err
	}
	objects := []client.Object{capiCluster(s.cluster)}
	if s.cluster.Spec.RKEConfig.InfrastructureRef == nil {
		objects = append(objects, infraCluster(s.cluster))
	}
	objects = append(objects, desired)
	for _, object := range objects {
		if err := r.keeper.Object(ctx, object); err != nil {
			return err
		}
	}
	s.handedOn = true
	return nil
}

// checkInfrastructure tells when the infrastructure cluster that the spec names cannot be read. It is no business of this controller's
// otherwise: Cluster API waits for it.
func (r *Reconciler) checkInfrastructure(ctx context.Context, s *scope) error {
	ref := s.cluster.Spec.RKEConfig.InfrastructureRef
	if ref == nil || !s.handedOn {
		return nil
	}
	key := client.ObjectKey{Namespace: s.cluster.Namespace, Name: ref.Name}
	_, fault, err := r.referenced(ctx, "spec.rkeConfig.infrastructureRef", key, ref.GroupKind(), "Infrastructure")
	if fault != nil {
		s.partial = append(s.partial, *fault)
	}
	return err
}

// readControlPlane reads what the Cluster's conditions are copied from.
func (r *Reconciler) readControlPlane(ctx context.Context, s *scope) error {
	rcp := &rkev1.RKEControlPlane{}
	found, err := r.read(ctx, client.ObjectKeyFromObject(s.cluster), rcp)
	if err != nil {
		s.unread.controlPlane = true
		return err
	}
	if found {
		s.controlPlane = rcp
	}
	return nil
}

// readClusterAPI reads the Cluster of Cluster API, which may have been paused.
func (r *Reconciler) readClusterAPI(ctx context.Context, s *scope) error {
	capi := &clusterv1.Cluster{}
	found, err := r.read(ctx, client.ObjectKeyFromObject(s.cluster), capi)
	if err != nil {
		return err
	}
	if found {
		s.capiCluster = capi
	}
	return nil
}

// readKubeconfig finds out whether the kubeconfig exists; its content is nobody's business here.
func (r *Reconciler) readKubeconfig(ctx context.Context, s *scope) error {
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	name := secret.Name(s.cluster.Name, secret.Kubeconfig)
	found, err := r.read(ctx, types.NamespacedName{Namespace: s.cluster.Namespace, Name: name}, object)
	if err != nil {
		s.unread.kubeconfig = true
		return err
	}
	if found {
		s.kubeconfigSecret = name
	}
	return nil
}

// read gets an object from the cache and tells whether there is one.
func (r *Reconciler) read(ctx context.Context, key client.ObjectKey, into client.Object) (bool, error) {
	return read(ctx, r.Client, key, into)
}

func read(ctx context.Context, from client.Reader, key client.ObjectKey, into client.Object) (bool, error) {
	err := from.Get(ctx, key, into)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading %T %s: %w", into, key, err)
	}
	return true, nil
}
