package cluster

import (
	"context"
	"fmt"
	"maps"
	"regexp"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	driverschema "github.com/drover-dev/drover/hub/nodedriver/schema"
	"github.com/drover-dev/drover/hub/util/cause"
	"github.com/drover-dev/drover/hub/util/objects"
	"github.com/drover-dev/drover/hub/util/ownership"
)

// The annotations in which Rancher writes what it has made an object for, beside that of the kind.
const (
	rancherOwnerNamespace = "objectset.rio.cattle.io/owner-namespace"
	rancherOwnerName      = "objectset.rio.cattle.io/owner-name"
)

// foreignNames are the names of Clusters that Rancher has for its own cluster, and for clusters of hosted providers and old imports. The
// API server refuses new Clusters with such a name.
var foreignNames = regexp.MustCompile(`^(local|c-[a-z0-9]{5}|c-m-[a-z0-9]{8})$`)

// hasForeignName reports whether a Cluster is one that the hub does not manage. It can be deleted nevertheless: nobody but the hub would
// remove the finalizers that Rancher has left on it.
func hasForeignName(cluster *provisioningv1.Cluster) bool {
	return foreignNames.MatchString(cluster.Name)
}

// madeByRancher reports whether Rancher has made an object for a Cluster. Annotations prove nothing where a tenant may write them: whoever
// takes an object over checks that the Cluster has it by another way, too.
func madeByRancher(o client.Object, cluster *provisioningv1.Cluster) bool {
	annotations := o.GetAnnotations()
	return annotations[driverschema.RancherOwnerKindAnnotation] == provisioningv1.GroupVersion.String()+", Kind=Cluster" &&
		annotations[rancherOwnerNamespace] == cluster.Namespace && annotations[rancherOwnerName] == cluster.Name
}

// adoptManagement returns the name of the management Cluster that Rancher has made for a Cluster, which the hub takes over with its
// namespace; empty for none. Another name would be another ID of the cluster in the values of charts, and need other registration tokens.
// Each of the two has to name the other: whoever may write the Cluster alone does not get the management Cluster of another one.
func (r *Reconciler) adoptManagement(ctx context.Context, cluster *provisioningv1.Cluster) (string, error) {
	name, owner := cluster.Status.ClusterName, ownerOf(cluster)
	management, namespace := &managementv3.Cluster{}, &corev1.Namespace{}
	if !ownership.IsManagementName(name) {
		return "", nil
	}
	found, err := objects.Get(ctx, r.Live, client.ObjectKey{Name: name}, management)
	if err != nil || !found || !management.DeletionTimestamp.IsZero() || !madeByRancher(management, cluster) {
		return "", err
	}
	adopted := []client.Object{management}
	if found, err = objects.Get(ctx, r.Live, client.ObjectKey{Name: name}, namespace); err != nil {
		return "", err
	}
	if found {
		adopted = append(adopted, namespace)
	}
	for _, object := range adopted {
		if !owner.Owns(object) && ownership.Key(object) != (client.ObjectKey{}) {
			return "", nil // it is that of another Cluster
		}
	}
	for _, object := range adopted {
		if owner.Owns(object) {
			continue
		}
		before := object.DeepCopyObject().(client.Object)
		labels := map[string]string{}
		maps.Copy(labels, object.GetLabels())
		maps.Copy(labels, owner.Labels())
		object.SetLabels(labels)
		patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
		if err := r.Client.Patch(ctx, object, patch, fieldOwner); err != nil {
			return "", fmt.Errorf("taking over %s %s: %w", objects.KindOf(object), name, err)
		}
	}
	return name, nil
}

// isPoolOfRancher reports whether Rancher has made a MachineDeployment for a pool, and the hub has not taken it over yet. Cluster API has
// made its Cluster of that name an owner, which is the Cluster's: the hub looks at no pools before.
func isPoolOfRancher(md *clusterv1.MachineDeployment, p *poolScope) bool {
	return madeByRancher(md, p.cluster) && ownership.OfClusterNamed(md, p.cluster.Name) && md.Spec.ClusterName == p.cluster.Name &&
		md.Spec.Template.Labels[rkev1.MachinePoolNameLabel] == p.spec.Name && md.DeletionTimestamp.IsZero() &&
		md.Annotations[rkev1.AppliedQuantityAnnotation] == ""
}

// adoptTemplate reports whether the machine template of a MachineDeployment of Rancher is that of the pool, and notes on it that it is up
// to date. Rancher has brought each change of a machine configuration to the machines itself, and leaves fields out of its copy that this
// hub does not: machines must not be replaced because of those. Of other providers, Rancher makes no copies.
func (r *Reconciler) adoptTemplate(ctx context.Context, p *poolScope, current clusterv1.ContractVersionedObjectReference,
	source *unstructured.Unstructured) (bool, error) {
	if current.GroupKind() != source.GroupVersionKind().GroupKind() {
		return false, nil
	}
	if driverschema.DriverOfTemplate(current.GroupKind()) == "" {
		return current.Name == source.GetName(), nil
	}
	template, err := r.readProviderObject(ctx, client.ObjectKey{Namespace: p.cluster.Namespace, Name: current.Name}, current.GroupKind())
	if err != nil {
		return false, err
	}
	if template == nil {
		p.problem = cause.New("MachineTemplateNotFound", "%s %s of MachineDeployment %s does not exist; restore it, or remove the pool",
			current.Kind, current.Name, p.deployment.Name)
		return false, errPoolWaits
	}
	if from := template.GetAnnotations()[rkev1.ClonedFromNameAnnotation]; from != "" && from != source.GetName() {
		return false, nil // the pool names another one since Rancher was stopped
	}
	if err := r.noteUpToDate(ctx, template, source); err != nil {
		return false, err
	}
	return true, nil
}

// bootstrapTemplateKind is the kind of the templates of RKEBootstraps.
var bootstrapTemplateKind = rkev1.GroupVersion.WithKind("RKEBootstrapTemplate").GroupKind()

// keepsBootstrapTemplate reports whether a MachineDeployment refers to a template that Rancher has made, with the content of the one that
// is wanted: another name would replace the machines.
func (r *Reconciler) keepsBootstrapTemplate(ctx context.Context, p *poolScope, wanted *rkev1.RKEBootstrapTemplate) (bool, error) {
	if p.deployment == nil {
		return false, nil
	}
	current := p.deployment.Spec.Template.Spec.Bootstrap.ConfigRef
	if current.GroupKind() != bootstrapTemplateKind || current.Name == wanted.Name {
		return false, nil
	}
	template := &rkev1.RKEBootstrapTemplate{}
	found, err := objects.Get(ctx, r.Client, client.ObjectKey{Namespace: p.cluster.Namespace, Name: current.Name}, template)
	return found && template.DeletionTimestamp.IsZero() && template.Labels[rkev1.MachinePoolNameLabel] == "" &&
		template.Spec.Template.Spec == wanted.Spec.Template.Spec, err
}
