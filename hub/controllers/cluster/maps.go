package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"sigs.k8s.io/cluster-api/util/secret"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/controllers/cluster/pool"
	driverschema "github.com/drover-dev/drover/hub/nodedriver/schema"
	"github.com/drover-dev/drover/hub/util/capicontract"
	"github.com/drover-dev/drover/hub/util/mapfuncs"
	"github.com/drover-dev/drover/hub/util/objects"
	"github.com/drover-dev/drover/hub/util/ownership"
)

// Indexes of Clusters by the objects that their machineSelectorFiles name.
const (
	indexFileSecrets    = "spec.rkeConfig.machineSelectorFiles.secret"
	indexFileConfigMaps = "spec.rkeConfig.machineSelectorFiles.configMap"
)

// Indexes of Clusters by the objects of providers that they refer to, and by the definitions of these objects' kinds.
const (
	indexProviderObjects     = "providerObjects"
	indexProviderDefinitions = "providerDefinitions"
)

func addIndexes(ctx context.Context, indexer client.FieldIndexer) error {
	for field, pick := range map[string]func(rkev1.ProvisioningFileSource) *rkev1.K8sObjectFileSource{
		indexFileSecrets:    func(s rkev1.ProvisioningFileSource) *rkev1.K8sObjectFileSource { return s.Secret },
		indexFileConfigMaps: func(s rkev1.ProvisioningFileSource) *rkev1.K8sObjectFileSource { return s.ConfigMap },
	} {
		extract := func(o client.Object) []string { return fileSources(o.(*provisioningv1.Cluster), pick) }
		if err := indexer.IndexField(ctx, &provisioningv1.Cluster{}, field, extract); err != nil {
			return fmt.Errorf("indexing Clusters by %s: %w", field, err)
		}
	}
	for field, key := range map[string]func(pool.TemplateRef) string{
		indexProviderObjects:     pool.TemplateRef.String,
		indexProviderDefinitions: func(ref pool.TemplateRef) string { return capicontract.DefinitionName(ref.GroupKind) },
	} {
		extract := func(o client.Object) []string { return providerKeys(o.(*provisioningv1.Cluster), key) }
		if err := indexer.IndexField(ctx, &provisioningv1.Cluster{}, field, extract); err != nil {
			return fmt.Errorf("indexing Clusters by %s: %w", field, err)
		}
	}
	return nil
}

// providerKeys returns the keys of all objects of providers that a Cluster refers to.
func providerKeys(cluster *provisioningv1.Cluster, key func(pool.TemplateRef) string) []string {
	if cluster.Spec.RKEConfig == nil {
		return nil
	}
	var keys []string
	add := func(kind schema.GroupKind, ref *provisioningv1.ObjectReference) {
		if ref != nil && ref.Kind != "" {
			keys = append(keys, key(pool.TemplateRef{GroupKind: kind, Name: ref.Name}))
		}
	}
	if ref := cluster.Spec.RKEConfig.InfrastructureRef; ref != nil {
		add(ref.GroupKind(), ref)
	}
	for i := range cluster.Spec.RKEConfig.MachinePools {
		p := &cluster.Spec.RKEConfig.MachinePools[i]
		add(p.MachineConfigKind().GroupKind(), p.MachineConfigRef)
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// fileSources returns the names that pick finds in the machineSelectorFiles of a Cluster.
func fileSources(cluster *provisioningv1.Cluster, pick func(rkev1.ProvisioningFileSource) *rkev1.K8sObjectFileSource) []string {
	var names []string
	if cluster.Spec.RKEConfig == nil {
		return nil
	}
	for _, files := range cluster.Spec.RKEConfig.MachineSelectorFiles {
		for _, source := range files.FileSources {
			if object := pick(source); object != nil && object.Name != "" {
				names = append(names, object.Name)
			}
		}
	}
	return names
}

// byLabel maps an object to the Cluster that its label names.
var byLabel = mapfuncs.ByLabel(rkev1.ClusterNameLabel)

// ownerFromLabels maps a management Cluster, and what belongs to it, to the Cluster that it was created for.
func ownerFromLabels(_ context.Context, o client.Object) []ctrl.Request {
	key := ownership.Key(o)
	return mapfuncs.Request(key)
}

// deletedMachineToCluster maps a Machine that is being deleted, which the deletion of its Cluster waits for.
func deletedMachineToCluster(ctx context.Context, o client.Object) []ctrl.Request {
	if o.GetDeletionTimestamp().IsZero() {
		return nil
	}
	return byLabel(ctx, o)
}

// secretToClusters maps a kubeconfig Secret, and the one with the tokens, to its Cluster, and a Secret with files to all Clusters that use
// it.
func (r *Reconciler) secretToClusters(ctx context.Context, o client.Object) []ctrl.Request {
	if cluster := o.GetLabels()[rkev1.ClusterNameLabel]; cluster != "" && o.GetName() == rkev1.ClusterStateSecretName(cluster) {
		return byLabel(ctx, o)
	}
	if name, ok := strings.CutSuffix(o.GetName(), "-"+string(secret.Kubeconfig)); ok {
		return mapfuncs.Request(client.ObjectKey{Namespace: o.GetNamespace(), Name: name})
	}
	return r.clustersByIndex(ctx, indexFileSecrets, o)
}

func (r *Reconciler) configMapToClusters(ctx context.Context, o client.Object) []ctrl.Request {
	return r.clustersByIndex(ctx, indexFileConfigMaps, o)
}

// poolObjectToCluster maps an object of a machine pool to its Cluster.
func poolObjectToCluster(ctx context.Context, o client.Object) []ctrl.Request {
	if o.GetLabels()[rkev1.MachinePoolNameLabel] == "" {
		return nil
	}
	return byLabel(ctx, o)
}

// deletions drops all events but deletions.
var deletions = predicate.Funcs{
	CreateFunc: func(event.CreateEvent) bool { return false },
	UpdateFunc: func(event.UpdateEvent) bool { return false },
}

// providerObjectToClusters maps an object of a provider to the Clusters that refer to it, and a copy to the Cluster of its pool.
func (r *Reconciler) providerObjectToClusters(ctx context.Context, o client.Object) []ctrl.Request {
	ref := pool.TemplateRef{GroupKind: o.GetObjectKind().GroupVersionKind().GroupKind(), Name: o.GetName()}
	return append(poolObjectToCluster(ctx, o), r.clustersByKey(ctx, indexProviderObjects, o.GetNamespace(), ref.String())...)
}

// nodeDriverToClusters maps a NodeDriver to the Clusters that refer to machine configurations of its driver.
func (r *Reconciler) nodeDriverToClusters(ctx context.Context, o client.Object) []ctrl.Request {
	driver, ok := o.(*managementv3.NodeDriver)
	if !ok || driver.Status.DriverName == "" {
		return nil
	}
	kind := driverschema.ConfigKind(driver.Status.DriverName).GroupKind()
	return r.clustersByKey(ctx, indexProviderDefinitions, "", capicontract.DefinitionName(kind))
}

// definitionToClusters maps the definition of a kind to the Clusters that refer to objects of it.
func (r *Reconciler) definitionToClusters(ctx context.Context, o client.Object) []ctrl.Request {
	return r.clustersByKey(ctx, indexProviderDefinitions, "", o.GetName())
}

func (r *Reconciler) clustersByIndex(ctx context.Context, field string, o client.Object) []ctrl.Request {
	return r.clustersByKey(ctx, field, o.GetNamespace(), o.GetName())
}

func (r *Reconciler) clustersByKey(ctx context.Context, field, namespace, key string) []ctrl.Request {
	return objects.List(ctx, r.Client, &provisioningv1.ClusterList{}, client.InNamespace(namespace), client.MatchingFields{field: key})
}
