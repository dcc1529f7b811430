package timeline

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/plan/reasons"
	"github.com/drover-dev/drover/hub/util/objects"
	"github.com/drover-dev/drover/hub/util/operations"
	"github.com/drover-dev/drover/hub/util/ownership"
)

// scope is a cluster with everything that belongs to it, read from the cache.
type scope struct {
	// provisioning is nil for a cluster that was written for Cluster API, also where a Cluster has its name; capi until the hub has created
	// it.
	provisioning *provisioningv1.Cluster
	capi         *clusterv1.Cluster
	// controlPlane is nil until it exists.
	controlPlane *rkev1.RKEControlPlane
	pools        []clusterv1.MachineDeployment
	machines     []clusterv1.Machine
	// bootstraps are by the name of the Machine.
	bootstraps map[string]*rkev1.RKEBootstrap
	// operations are those that exist, and those that have ended and were deleted since the last reconcile. They must not be changed.
	operations []operationv1.Operation
}

// conditioned is an object with conditions.
type conditioned interface {
	client.Object
	conditions.Getter
}

// load returns nil for a cluster that does not exist, is imported, or has a control plane of another provider.
func (r *Reconciler) load(ctx context.Context, key client.ObjectKey) (*scope, error) {
	s := &scope{bootstraps: map[string]*rkev1.RKEBootstrap{}}
	provisioning, capi := &provisioningv1.Cluster{}, &clusterv1.Cluster{}
	found, err := objects.Get(ctx, r.Client, key, provisioning)
	if err != nil {
		return nil, err
	}
	if found && provisioning.Spec.RKEConfig != nil {
		s.provisioning = provisioning
	}
	if found, err = objects.Get(ctx, r.Client, key, capi); err != nil {
		return nil, err
	}
	if found && !ownership.OfProvisioningCluster(capi, key.Name) {
		s.provisioning = nil // it has the name, and no part in the cluster
	}
	if found && rkev1.Refers(capi.Spec.ControlPlaneRef, "RKEControlPlane") {
		s.capi = capi
		if s.controlPlane, _, err = ownership.ControlPlane(ctx, r.Client, capi); err != nil {
			return nil, err
		}
	}
	if s.provisioning == nil && s.capi == nil {
		return nil, nil
	}
	if err := r.loadMachines(ctx, key, s); err != nil {
		return nil, err
	}
	opts := []client.ListOption{client.UnsafeDisableDeepCopy}
	if r.indexed {
		opts = append(opts, operations.Indexed(key))
	}
	s.operations, err = operations.Of(ctx, r.Client, key, opts...)
	return s, err
}

func (r *Reconciler) loadMachines(ctx context.Context, key client.ObjectKey, s *scope) error {
	in, of := client.InNamespace(key.Namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: key.Name}
	var pools clusterv1.MachineDeploymentList
	var machines clusterv1.MachineList
	for _, list := range []client.ObjectList{&pools, &machines} {
		if err := r.Client.List(ctx, list, in, of); err != nil {
			return fmt.Errorf("listing the machines of cluster %s: %w", key, err)
		}
	}
	s.pools = pools.Items
	for _, machine := range machines.Items {
		ref := machine.Spec.Bootstrap.ConfigRef
		if !rkev1.Refers(ref, "RKEBootstrap") {
			continue
		}
		s.machines = append(s.machines, machine)
		bootstrap := &rkev1.RKEBootstrap{}
		found, err := objects.Get(ctx, r.Client, client.ObjectKey{Namespace: key.Namespace, Name: ref.Name}, bootstrap)
		if err != nil {
			return err
		}
		if found {
			s.bootstraps[machine.Name] = bootstrap
		}
	}
	return nil
}

// clusterObject is the Cluster that the user wrote.
func (s *scope) clusterObject() conditioned {
	if s.provisioning != nil {
		return s.provisioning
	}
	return s.capi
}

// reference is how Events refer to an object. Objects from a cache have no kind set.
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
	case operationv1.Operation:
		ref.APIVersion = operationv1.GroupVersion.String()
	default:
		ref.APIVersion = clusterv1.GroupVersion.String()
	}
	return ref
}

func kindOf(object client.Object) string {
	switch o := object.(type) {
	case operationv1.Operation:
		return operationv1.Kind(o)
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

// publicMessage is what Events, timeline and provisioning log say instead of a condition's message. A sensitive message, which quotes
// output of a program, is replaced by where to find it.
func (s *scope) publicMessage(reason, message string) string {
	if !reasons.Get(reason).Sensitive {
		return message
	}
	failed, on := s.failedMachines(), ""
	if len(failed) > 0 {
		on = " on " + strings.Join(failed[:min(len(failed), 3)], ", ")
	}
	return "Applying the plan failed" + on + "; see condition " + rkev1.PlanAppliedCondition + " of the Machine for the output"
}

// failedMachines are the names of the Machines whose plan failed.
func (s *scope) failedMachines() (failed []string) {
	for i := range s.machines {
		if conditions.IsFalse(&s.machines[i], rkev1.PlanAppliedCondition) {
			failed = append(failed, s.machines[i].Name)
		}
	}
	return failed
}

// objects are all objects of the cluster whose conditions cause Events.
func (s *scope) objects() []conditioned {
	var out []conditioned
	if s.provisioning != nil {
		out = append(out, s.provisioning)
	}
	if s.capi != nil {
		out = append(out, s.capi)
	}
	if s.controlPlane != nil {
		out = append(out, s.controlPlane)
	}
	for i := range s.pools {
		out = append(out, &s.pools[i])
	}
	for i := range s.machines {
		m := &s.machines[i]
		out = append(out, m)
		if b := s.bootstraps[m.Name]; b != nil {
			out = append(out, b)
		}
	}
	for _, op := range s.operations {
		out = append(out, op)
	}
	return out
}
