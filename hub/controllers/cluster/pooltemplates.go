package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/controllers/cluster/pool"
	"github.com/drover-dev/drover/hub/util/capicontract"
	"github.com/drover-dev/drover/hub/util/cause"
	"github.com/drover-dev/drover/hub/util/objects"
)

// reconcileMachineTemplate returns the template of the pool's machines: a copy of the template that the pool names, created if there is
// none with its present content. A pool with machines keeps them, and can be scaled, while its template cannot be read or copied.
func (r *Reconciler) reconcileMachineTemplate(ctx context.Context, p *poolScope) (clusterv1.ContractVersionedObjectReference, error) {
	source, err := r.machineTemplate(ctx, p)
	if err != nil {
		return clusterv1.ContractVersionedObjectReference{}, err
	}
	var current clusterv1.ContractVersionedObjectReference
	if p.deployment != nil {
		current = p.deployment.Spec.Template.Spec.InfrastructureRef
	}
	if p.adopted {
		if source == nil {
			return current, errPoolWaits // without it, nobody knows later that the machines are up to date
		}
		if adopted, err := r.adoptTemplate(ctx, p, current, source); adopted || err != nil {
			return current, err
		}
	}
	if source != nil {
		upToDate, err := r.upToDate(ctx, p, current, source)
		if err != nil {
			return current, err
		}
		if upToDate {
			return current, r.applyCommon(ctx, p, current, source)
		}
		clone, err := r.clone(ctx, p, source)
		if err != nil || clone != nil {
			return ptr.Deref(clone, current), err
		}
	}
	if !current.IsDefined() {
		return current, errPoolWaits
	}
	return current, nil
}

// upToDate returns whether the template of a pool's machines has the content of its source.
func (r *Reconciler) upToDate(ctx context.Context, p *poolScope, current clusterv1.ContractVersionedObjectReference,
	source *unstructured.Unstructured) (bool, error) {
	if !current.IsDefined() || current.GroupKind() != source.GroupVersionKind().GroupKind() {
		return false, nil
	}
	clone, err := r.readProviderObject(ctx, client.ObjectKey{Namespace: p.cluster.Namespace, Name: current.Name}, current.GroupKind())
	if err != nil || clone == nil {
		return false, err
	}
	return clone.GetDeletionTimestamp().IsZero() && pool.UpToDate(clone, source), nil
}

// machineTemplate reads the template that a pool names; nil, with the pool's problem set, if it cannot be used.
func (r *Reconciler) machineTemplate(ctx context.Context, p *poolScope) (*unstructured.Unstructured, error) {
	if p.spec.MachineConfigKind().Group == provisioningv1.MachineConfigGroup {
		return r.templateOfConfig(ctx, p)
	}
	field, ref := pool.Field(p.spec.Name, "machineConfigRef"), p.spec.MachineConfigRef
	key := client.ObjectKey{Namespace: p.cluster.Namespace, Name: ref.Name}
	source, fault, err := r.referenced(ctx, field, key, ref.GroupKind(), "MachineTemplate")
	if err != nil || fault != nil {
		p.problem = fault
		return nil, err
	}
	if _, found, err := unstructured.NestedMap(source.Object, "spec", "template", "spec"); err != nil || !found {
		p.problem = cause.New("InvalidMachineTemplate", "%s: %s %q has no spec.template.spec; name a machine template", field,
			ref.Kind, ref.Name)
		return nil, nil
	}
	return source, nil
}

// clone creates a copy of a machine template; nil, with the pool's problem set, if the provider refuses it. An existing copy of that name
// has the same content, since the name is derived from the content.
func (r *Reconciler) clone(ctx context.Context, p *poolScope,
	source *unstructured.Unstructured) (*clusterv1.ContractVersionedObjectReference, error) {
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
		p.problem = cause.New("MachineTemplateRefused", "%s: the provider refuses a copy of %s %q: %v",
			pool.Field(p.spec.Name, "machineConfigRef"), source.GetKind(), source.GetName(), err)
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("copying %s %s: %w", source.GetKind(), source.GetName(), err)
	}
	return new(pool.Ref(kind, clone.GetName())), nil
}

// referenced reads an object that the spec refers to by group and kind, and watches its kind from then on. If it does not exist, it returns
// a problem that names the field; what is the prefix of the reasons.
func (r *Reconciler) referenced(ctx context.Context, field string, key client.ObjectKey, kind schema.GroupKind,
	what string) (*unstructured.Unstructured, *cause.Cause, error) {
	object, err := r.readProviderObject(ctx, key, kind)
	var missing *capicontract.NotInstalledError
	var foreign *capicontract.NotSupportedError
	switch {
	case errors.As(err, &missing):
		return nil, cause.New(what+"KindNotInstalled", "%s: %v", field, err), nil
	case errors.As(err, &foreign):
		return nil, cause.New(what+"KindNotSupported", "%s: %v", field, err), nil
	case err != nil:
		return nil, nil, err
	case object == nil:
		return nil, cause.New(what+"NotFound", "%s: %s %q does not exist in namespace %s; create it or correct the name", field,
			kind.Kind, key.Name, key.Namespace), nil
	}
	return object, nil, nil
}

// readTimeout limits the wait for the cache of a provider's kind. The cache never comes up while the provider's conversion webhook does not
// answer, or while the hub may not list the kind, and a reconcile that waited for it would keep other Clusters from theirs.
const readTimeout = 5 * time.Second

// readProviderObject reads an object of a provider's kind in the version of its contract; nil if it does not exist.
func (r *Reconciler) readProviderObject(
	ctx context.Context, key client.ObjectKey, kind schema.GroupKind,
) (*unstructured.Unstructured, error) {
	apiVersion, err := capicontract.APIVersion(ctx, r.Client, kind)
	if err != nil {
		return nil, err
	}
	object := &unstructured.Unstructured{}
	object.SetAPIVersion(apiVersion)
	object.SetKind(kind.Kind)
	if err := r.watch(ctx, object); err != nil {
		return nil, err
	}
	reading, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	found, err := objects.Get(reading, r.Client, key, object)
	if err != nil && reading.Err() != nil && ctx.Err() == nil {
		return nil, fmt.Errorf("%w; check that the provider of kind %s is running, and that the hub may list this kind", err, kind)
	}
	if err != nil || !found {
		return nil, err
	}
	return object, nil
}

// keptTemplates are the machine templates of a pool that exist: those that are in use, and those that are still to be deleted.
func keptTemplates(p *poolScope, current clusterv1.ContractVersionedObjectReference) []pool.TemplateRef {
	kept := []pool.TemplateRef{pool.RefOf(current)}
	if p.deployment != nil {
		kept = append(kept, pool.ParseRefs(p.deployment)...)
	}
	return kept
}

// removeUnusedTemplates deletes templates of earlier contents that no MachineSet refers to any more. It waits while the MachineDeployment
// was not reconciled since its last change: its controller may be about to create a MachineSet.
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
	changed, err := desiredDeployment(p, pool.Templates{
		Bootstrap: p.deployment.Spec.Template.Spec.Bootstrap.ConfigRef,
		Machine:   p.deployment.Spec.Template.Spec.InfrastructureRef,
		Kept:      left,
	})
	if err != nil {
		return err
	}
	return r.ssa.Apply(ctx, client.ObjectKeyFromObject(p.cluster), changed)
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

// removeMachineTemplate deletes a copy of a template, if it has the label of the pool.
func (r *Reconciler) removeMachineTemplate(ctx context.Context, deployment *clusterv1.MachineDeployment, ref pool.TemplateRef) error {
	object, err := r.readProviderObject(ctx, client.ObjectKey{Namespace: deployment.Namespace, Name: ref.Name}, ref.GroupKind)
	if missing := new(capicontract.NotInstalledError); errors.As(err, &missing) {
		return nil
	}
	if err != nil || object == nil || !object.GetDeletionTimestamp().IsZero() ||
		object.GetLabels()[rkev1.MachinePoolNameLabel] != deployment.Labels[rkev1.MachinePoolNameLabel] {
		return err
	}
	return objects.Delete(ctx, r.Client, object)
}

func (r *Reconciler) removeBootstrapTemplates(ctx context.Context, p *poolScope, used []pool.TemplateRef) error {
	var list rkev1.RKEBootstrapTemplateList
	if err := r.Client.List(ctx, &list, client.InNamespace(p.cluster.Namespace),
		client.MatchingLabels(pool.Labels(p.cluster.Name, p.spec.Name))); err != nil {
		return fmt.Errorf("listing the bootstrap templates of the pool %s: %w", p.spec.Name, err)
	}
	kind := rkev1.GroupVersion.WithKind("RKEBootstrapTemplate").GroupKind()
	for i := range list.Items {
		template := &list.Items[i]
		if slices.Contains(used, pool.TemplateRef{GroupKind: kind, Name: template.Name}) || !template.DeletionTimestamp.IsZero() {
			continue
		}
		if err := objects.Delete(ctx, r.Client, template); err != nil {
			return err
		}
	}
	return nil
}
