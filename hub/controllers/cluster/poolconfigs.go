package cluster

import (
	"context"
	"encoding/json"
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	"github.com/drover-dev/drover/hub/controllers/cluster/pool"
	"github.com/drover-dev/drover/hub/nodedriver/schema"
	"github.com/drover-dev/drover/hub/util/capicontract"
	"github.com/drover-dev/drover/hub/util/cause"
	"github.com/drover-dev/drover/hub/util/objects"
)

// templateOfConfig returns the machine template for the machine configuration of a node driver that a pool names; nil, with the pool's
// problem set, if it cannot be used.
func (r *Reconciler) templateOfConfig(ctx context.Context, p *poolScope) (*unstructured.Unstructured, error) {
	field, ref, kind := pool.Field(p.spec.Name, "machineConfigRef"), p.spec.MachineConfigRef, p.spec.MachineConfigKind()
	driver := schema.DriverOf(kind.GroupKind())
	if want := schema.ConfigKind(driver); kind != want {
		p.problem = cause.New("MachineConfigKindNotInstalled", "%s: there is no kind %s; did you mean %s of %s?", field, kind.Kind, want.Kind,
			want.GroupVersion())
		return nil, nil
	}
	if problem, err := r.checkDriver(ctx, field, driver); err != nil || problem != nil {
		p.problem = problem
		return nil, err
	}
	config := &unstructured.Unstructured{}
	config.SetGroupVersionKind(kind)
	if err := r.watch(ctx, config); err != nil {
		return nil, err
	}
	found, err := objects.Get(ctx, r.Client, client.ObjectKey{Namespace: p.cluster.Namespace, Name: ref.Name}, config)
	if err != nil {
		return nil, err
	}
	if !found {
		p.problem = cause.New("MachineConfigNotFound", "%s: %s %q does not exist in namespace %s; create it or correct the name", field,
			kind.Kind, ref.Name, p.cluster.Namespace)
		return nil, nil
	}
	if err := r.ownConfig(ctx, p, config); err != nil {
		return nil, err
	}
	return pool.TemplateOfConfig(p.cluster, p.spec, driver, config), nil
}

// checkDriver returns what is wrong with a node driver: its kinds are not there, or it is not active.
func (r *Reconciler) checkDriver(ctx context.Context, field, driver string) (*cause.Cause, error) {
	crd := &metav1.PartialObjectMetadata{}
	crd.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
	found, err := objects.Get(ctx, r.Client, client.ObjectKey{Name: capicontract.DefinitionName(schema.TemplateKind(driver).GroupKind())}, crd)
	if err != nil {
		return nil, err
	}
	if !found {
		return cause.New("MachineConfigKindNotInstalled", "%s: no NodeDriver of driver %s is installed; create and activate one", field,
			driver), nil
	}
	nodeDriver := &managementv3.NodeDriver{}
	found, err = objects.Get(ctx, r.Client, client.ObjectKey{Name: crd.Labels[schema.DriverLabel]}, nodeDriver)
	if err != nil {
		return nil, err
	}
	if !found || !nodeDriver.Spec.Active {
		return cause.New("NodeDriverInactive", "%s: NodeDriver %s is not active; ask an administrator to activate it", field,
			crd.Labels[schema.DriverLabel]), nil
	}
	return nil, nil
}

// ownConfig makes the Cluster an owner of a machine configuration that only Clusters own, or nobody, so that it is moved with them, and
// deleted with the last one.
func (r *Reconciler) ownConfig(ctx context.Context, p *poolScope, config *unstructured.Unstructured) error {
	owners := config.GetOwnerReferences()
	for _, owner := range owners {
		group, err := runtimeschema.ParseGroupVersion(owner.APIVersion)
		if err != nil || group.Group != provisioningv1.GroupVersion.Group || owner.Kind != "Cluster" || owner.UID == p.cluster.UID {
			return nil //nolint:nilerr // it is ours, or belongs to something else
		}
	}
	owned := config.DeepCopy()
	owned.SetOwnerReferences(append(owners, metav1.OwnerReference{
		APIVersion: provisioningv1.GroupVersion.String(), Kind: "Cluster", Name: p.cluster.Name, UID: p.cluster.UID,
	}))
	patch := client.MergeFromWithOptions(config, client.MergeFromWithOptimisticLock{})
	if err := r.Client.Patch(ctx, owned, patch, fieldOwner); err != nil {
		return fmt.Errorf("setting the owner of %s %s: %w", config.GetKind(), config.GetName(), err)
	}
	return nil
}

// noteUpToDate notes on a template of a node driver that it is up to date with a source that has other fields.
func (r *Reconciler) noteUpToDate(ctx context.Context, template, source *unstructured.Unstructured) error {
	noted := template.DeepCopy()
	changed, err := pool.SetUpToDate(noted, source)
	if err != nil || !changed {
		return err
	}
	if err := r.Client.Patch(ctx, noted, client.MergeFrom(template), fieldOwner); err != nil {
		return fmt.Errorf("annotating %s %s: %w", template.GetKind(), template.GetName(), err)
	}
	return nil
}

// applyCommon writes the common part of the template of a node driver, which changes without replacing machines, and notes on one that has
// other fields than its source that it is up to date.
func (r *Reconciler) applyCommon(ctx context.Context, p *poolScope, current clusterv1.ContractVersionedObjectReference,
	source *unstructured.Unstructured) error {
	if schema.DriverOfTemplate(current.GroupKind()) == "" {
		return nil
	}
	clone, err := r.readProviderObject(ctx, client.ObjectKey{Namespace: p.cluster.Namespace, Name: current.Name}, current.GroupKind())
	if err != nil || clone == nil {
		return err
	}
	if !pool.HasContent(clone, source) {
		if err := r.noteUpToDate(ctx, clone, source); err != nil {
			return err
		}
	}
	if equality.Semantic.DeepEqual(pool.Common(clone), pool.Common(source)) {
		return nil
	}
	var common any
	if wanted := pool.Common(source); wanted != nil {
		common = wanted
	}
	raw, err := json.Marshal(map[string]any{"spec": map[string]any{"template": map[string]any{"spec": map[string]any{"common": common}}}})
	if err != nil {
		return err
	}
	if err := r.Client.Patch(ctx, clone, client.RawPatch(types.MergePatchType, raw), fieldOwner); err != nil {
		return fmt.Errorf("writing the cloud credential of %s %s: %w", clone.GetKind(), clone.GetName(), err)
	}
	return nil
}
