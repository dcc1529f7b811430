package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/contract"
	"github.com/drover-dev/drover/hub/controllers/cluster/pool"
)

// reconcileMachineTemplate returns what the pool's machines are made from: a copy of the template that the pool names, made when there is
// none of its present content. A pool that has machines keeps them, and can be scaled, while its template cannot be read or copied.
func (r *Reconciler) reconcileMachineTemplate(ctx context.Context, p *poolScope) (clusterv1.ContractVersionedObjectReference, error) {
	source, err := r.machineTemplate(ctx, p)
	if err != nil {
		return clusterv1.ContractVersionedObjectReference{}, err
	}
	var current clusterv1.ContractVersionedObjectReference
	if p.deployment != nil {
		current = p.deployment.Spec.Template.Spec.InfrastructureRef
	}
	if source != nil {
		upToDate, err := r.upToDate(ctx, p, current, source)
		if err != nil {
			return current, err
		}
		if !upToDate {
			clone, err := r.clone(ctx, p, source)
			if err != nil || clone != nil {
				return ptr.Deref(clone, current), err
			}
		}
	}
	if !current.IsDefined() {
		return current, errPoolWaits
	}
	return current, nil
}

// upToDate tells whether the template that a pool's machines are made from is one of what its source says.
func (r *Reconciler) upToDate(ctx context.Context, p *poolScope, current clusterv1.ContractVersionedObjectReference, source *unstructured.Unstructured) (bool, error) {
	if !current.IsDefined() || current.GroupKind() != source.GroupVersionKind().GroupKind() {
		return false, nil
	}
	clone, err := r.readProviderObject(ctx, client.ObjectKey{Namespace: p.cluster.Namespace, Name: current.Name}, current.GroupKind())
	if err != nil || clone == nil {
		return false, err
	}
	return clone.GetDeletionTimestamp().IsZero() && pool.UpToDate(clone, source), nil
}

// machineTemplate reads the template that a pool names; nil with the pool's problem set where that cannot be.
func (r *Reconciler) machineTemplate(ctx context.Context, p *poolScope) (*unstructured.Unstructured, error) {
	field, ref := pool.Field(p.spec.Name, "machineConfigRef"), p.spec.MachineConfigRef
	source, fault, err := r.referenced(ctx, field, client.ObjectKey{Namespace: p.cluster.Namespace, Name: ref.Name}, ref.GroupKind(), "MachineTemplate")
	if err != nil || fault != nil {
		p.problem = fault
		return nil, err
	}
	if _, found, err := unstructured.NestedMap(source.Object, "spec", "template", "spec"); err != nil || !found {
		p.problem = &problem{"InvalidMachineTemplate", fmt.Sprintf("%s: the %s %q has no spec.template.spec, so no machine can be made from it; name the template of a machine", field, ref.Kind, ref.Name)}
		return nil, nil
	}
	return source, nil
}

// clone makes a copy of a machine template, or returns nil with the pool's problem set where the provider takes none. A copy of that name
// that exists holds the same content, since the name tells the content.
func (r *Reconciler) clone(ctx context.Context, p *poolScope, source *unstructured.Unstructured) (*clusterv1.ContractVersionedObjectReference, error) {
	clone, err := pool.Clone(p.cluster, p.spec, source)
	if err != nil {
		return nil, err
	}
	kind := clone.GroupVersionKind().GroupKind()
	existing, err := r.readProviderObject(ctx, client.ObjectKeyFromObject(clone), kind)
	if err != nil {
		return nil, err
	}
	if existing == nil {
		err = r.Client.Create(ctx, clone, fieldOwner)
	}
	if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) {
		p.problem = &problem{"MachineTemplateRefused", fmt.Sprintf("%s: the provider refuses a copy of the %s %q: %v",
			pool.Field(p.spec.Name, "machineConfigRef"), source.GetKind(), source.GetName(), err)}
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("copying %s %s: %w", source.GetKind(), source.GetName(), err)
	}
	return ptr.To(pool.Ref(kind, clone.GetName())), nil
}

// referenced reads an object that the spec refers to by group and kind, and watches its kind from then on. Where it cannot be read, the
// problem names the field; what is short for the kind begins the reasons.
func (r *Reconciler) referenced(ctx context.Context, field string, key client.ObjectKey, kind schema.GroupKind, what string) (*unstructured.Unstructured, *problem, error) {
	object, err := r.readProviderObject(ctx, key, kind)
	var missing *contract.NotInstalledError
	var foreign *contract.NotKeptError
	switch {
	case errors.As(err, &missing):
		return nil, &problem{what + "KindNotInstalled", fmt.Sprintf("%s: %v", field, err)}, nil
	case errors.As(err, &foreign):
		return nil, &problem{what + "KindNotSupported", fmt.Sprintf("%s: %v", field, err)}, nil
	case err != nil:
		return nil, nil, err
	case object == nil:
		return nil, &problem{what + "NotFound", fmt.Sprintf("%s: there is no %s %q in the namespace %s; create it, or correct the name", field, kind.Kind, key.Name, key.Namespace)}, nil
	}
	return object, nil, nil
}

// readProviderObject reads an object of a provider's kind, in the version that its contract asks for; nil where there is none.
func (r *Reconciler) readProviderObject(ctx context.Context, key client.ObjectKey, kind schema.GroupKind) (*unstructured.Unstructured, error) {
	apiVersion, err := contract.APIVersion(ctx, r.Client, kind)
	if err != nil {
		return nil, err
	}
	object := &unstructured.Unstructured{}
	object.SetAPIVersion(apiVersion)
	object.SetKind(kind.Kind)
	if err := r.watch(ctx, object); err != nil {
		return nil, err
	}
	found, err := r.read(ctx, key, object)
	if err != nil || !found {
		return nil, err
	}
	return object, nil
}

// keptTemplates are the machine templates of a pool that are still there: those that something refers to, and those that are yet to go.
func keptTemplates(p *poolScope, current clusterv1.ContractVersionedObjectReference) []pool.TemplateRef {
	kept := []pool.TemplateRef{pool.RefOf(current)}
	if p.deployment != nil {
		kept = append(kept, pool.ParseRefs(p.deployment)...)
	}
	return kept
}

// removeUnusedTemplates removes the templates of earlier contents once no MachineSet refers to them any more. A MachineDeployment that its
// controller has not looked at since its last change may be about to get a MachineSet that nobody sees yet.
func (r *Reconciler) removeUnusedTemplates(ctx context.Context, p *poolScope) error {
	if p.deployment.Status.ObservedGeneration < p.deployment.Generation {
		return nil
	}
	used := usedTemplates(p)
	kept := pool.ParseRefs(p.deployment)
	left := slices.DeleteFunc(slices.Clone(kept), func(ref pool.TemplateRef) bool { return !slices.Contains(used, ref) })
	for _, ref := range kept {
		if slices.Contains(left, ref) {
			continue
		}
		if err := r.removeMachineTemplate(ctx, p.deployment, ref); err != nil {
			return err
		}
	}
	if err := r.removeBootstrapTemplates(ctx, p, used); err != nil || len(left) == len(kept) {
		return err
	}
	changed, err := pool.MachineDeployment(p.cluster, p.spec, pool.Templates{
		Bootstrap: p.deployment.Spec.Template.Spec.Bootstrap.ConfigRef,
		Machine:   p.deployment.Spec.Template.Spec.InfrastructureRef,
		Kept:      left,
	})
	if err != nil {
		return err
	}
	return r.keeper.Object(ctx, changed)
}

// usedTemplates are all templates that the MachineDeployment and its MachineSets refer to.
func usedTemplates(p *poolScope) []pool.TemplateRef {
	spec := p.deployment.Spec.Template.Spec
	used := []pool.TemplateRef{pool.RefOf(spec.InfrastructureRef), pool.RefOf(spec.Bootstrap.ConfigRef)}
	for _, set := range p.sets {
		spec := set.Spec.Template.Spec
		used = append(used, pool.RefOf(spec.InfrastructureRef), pool.RefOf(spec.Bootstrap.ConfigRef))
	}
	return used
}

// removeMachineTemplate removes a copy, and nothing that is not one.
func (r *Reconciler) removeMachineTemplate(ctx context.Context, deployment *clusterv1.MachineDeployment, ref pool.TemplateRef) error {
	object, err := r.readProviderObject(ctx, client.ObjectKey{Namespace: deployment.Namespace, Name: ref.Name}, ref.GroupKind)
	if missing := new(contract.NotInstalledError); errors.As(err, &missing) {
		return nil
	}
	if err != nil || object == nil || !object.GetDeletionTimestamp().IsZero() ||
		object.GetLabels()[rkev1.MachinePoolNameLabel] != deployment.Labels[rkev1.MachinePoolNameLabel] {
		return err
	}
	if err := r.Client.Delete(ctx, object); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting the machine template %s: %w", ref, err)
	}
	return nil
}

func (r *Reconciler) removeBootstrapTemplates(ctx context.Context, p *poolScope, used []pool.TemplateRef) error {
	var list rkev1.RKEBootstrapTemplateList
	if err := r.Client.List(ctx, &list, client.InNamespace(p.cluster.Namespace), client.MatchingLabels(pool.Labels(p.cluster.Name, p.spec.Name))); err != nil {
		return fmt.Errorf("listing the bootstrap templates of the pool %s: %w", p.spec.Name, err)
	}
	kind := rkev1.GroupVersion.WithKind("RKEBootstrapTemplate").GroupKind()
	for i := range list.Items {
		template := &list.Items[i]
		if slices.Contains(used, pool.TemplateRef{GroupKind: kind, Name: template.Name}) || !template.DeletionTimestamp.IsZero() {
			continue
		}
		if err := r.Client.Delete(ctx, template); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting the bootstrap template %s: %w", template.Name, err)
		}
	}
	return nil
}
