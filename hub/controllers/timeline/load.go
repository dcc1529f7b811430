package timeline

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/ownership"
)

// scope is a cluster with everything that belongs to it, as the cache has it.
type scope struct {
	// provisioning is nil for a cluster that was written for Cluster API, capi until the hub has made it.
	provisioning *provisioningv1.Cluster
	capi         *clusterv1.Cluster
	// controlPlane is nil until it is made.
	controlPlane *rkev1.RKEControlPlane
	pools        []clusterv1.MachineDeployment
	machines     []clusterv1.Machine
	bootstraps   map[string]*rkev1.RKEBootstrap
}

// conditioned is an object with conditions.
type conditioned interface {
	client.Object
	conditions.Getter
}

// load returns nil for a cluster that is gone, or that is not the hub's to manage.
func (r *Reconciler) load(ctx context.Context, key client.ObjectKey) (*scope, error) {
	s := &scope{bootstraps: map[string]*rkev1.RKEBootstrap{}}
	provisioning, capi := &provisioningv1.Cluster{}, &clusterv1.Cluster{}
	found, err := r.get(ctx, key, provisioning)
	if err != nil {
		return nil, err
	}
	if found && provisioning.Spec.RKEConfig != nil {
		s.provisioning = provisioning
	}
	if found, err = r.get(ctx, key, capi); err != nil {
		return nil, err
	}
	ref := capi.Spec.ControlPlaneRef
	if found && ref.APIGroup == rkev1.GroupVersion.Group && ref.Kind == "RKEControlPlane" {
		s.capi = capi
		if s.controlPlane, _, err = ownership.ControlPlane(ctx, r.Client, capi); err != nil {
			return nil, err
		}
	}
	if s.provisioning == nil && s.capi == nil {
		return nil, nil
	}
	return s, r.loadMachines(ctx, key, s)
}

func (r *Reconciler) loadMachines(ctx context.Context, key client.ObjectKey, s *scope) error {
	in, of := client.InNamespace(key.Namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: key.Name}
	var pools clusterv1.MachineDeploymentList
	var machines clusterv1.MachineList
	for _, list := range []client.ObjectList{&pools, &machines} {
		if err := r.Client.List(ctx, list, in, of); err != nil {
			return fmt.Errorf("listing what belongs to cluster %s: %w", key, err)
		}
	}
	s.pools = pools.Items
	for _, machine := range machines.Items {
		ref := machine.Spec.Bootstrap.ConfigRef
		if ref.APIGroup != rkev1.GroupVersion.Group || ref.Kind != "RKEBootstrap" {
			continue
		}
		s.machines = append(s.machines, machine)
		bootstrap := &rkev1.RKEBootstrap{}
		found, err := r.get(ctx, client.ObjectKey{Namespace: key.Namespace, Name: ref.Name}, bootstrap)
		if err != nil {
			return err
		}
		if found {
			s.bootstraps[machine.Name] = bootstrap
		}
	}
	return nil
}

func (r *Reconciler) get(ctx context.Context, key client.ObjectKey, into client.Object) (bool, error) {
	err := r.Client.Get(ctx, key, into)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading %T %s: %w", into, key, err)
	}
	return true, nil
}

// top is the object that stands for the cluster: the one that its user has written.
func (s *scope) top() conditioned {
	if s.provisioning != nil {
		return s.provisioning
	}
	return s.capi
}

// reference is how Events refer to an object. What is read from a cache does not say its kind.
func reference(object client.Object) corev1.ObjectReference {
	ref := corev1.ObjectReference{
		Namespace: object.GetNamespace(), Name: object.GetName(), UID: object.GetUID(), ResourceVersion: object.GetResourceVersion(),
		Kind: kindOf(object),
	}
	switch object.(type) {
	case *provisioningv1.Cluster:
		ref.APIVersion = provisioningv1.GroupVersion.String()
	case *rkev1.RKEControlPlane, *rkev1.RKEBootstrap:
		ref.APIVersion = rkev1.GroupVersion.String()
	default:
		ref.APIVersion = clusterv1.GroupVersion.String()
	}
	return ref
}

func kindOf(object client.Object) string {
	switch object.(type) {
	case *rkev1.RKEControlPlane:
		return "RKEControlPlane"
	case *rkev1.RKEBootstrap:
		return "RKEBootstrap"
	case *clusterv1.Machine:
		return "Machine"
	case *clusterv1.MachineDeployment:
		return "MachineDeployment"
	}
	return "Cluster"
}
