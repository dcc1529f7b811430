package nodelookup

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// indexMachineUID finds a CustomMachine by the UID of its Machine, which its Node carries as a label.
const indexMachineUID = "metadata.ownerReferences.machineUID"

func addIndex(ctx context.Context, indexer client.FieldIndexer) error {
	if err := indexer.IndexField(ctx, &rkev1.CustomMachine{}, indexMachineUID, machineUIDs); err != nil {
		return fmt.Errorf("indexing CustomMachines by their Machine: %w", err)
	}
	return nil
}

func machineUIDs(o client.Object) []string {
	var uids []string
	for _, ref := range o.GetOwnerReferences() {
		gv, err := schema.ParseGroupVersion(ref.APIVersion)
		if err == nil && gv.Group == clusterv1.GroupVersion.Group && ref.Kind == "Machine" {
			uids = append(uids, string(ref.UID))
		}
	}
	return uids
}

// nodeToMachine maps a Node of any cluster to its CustomMachine. A UID tells the clusters apart.
func (r *Reconciler) nodeToMachine(ctx context.Context, o client.Object) []ctrl.Request {
	uid := o.GetLabels()[rkev1.MachineUIDLabel]
	if uid == "" {
		return nil
	}
	var customs rkev1.CustomMachineList
	if err := r.Client.List(ctx, &customs, client.MatchingFields{indexMachineUID: uid}); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Cannot find the CustomMachine of a Node", "node", o.GetName())
		return nil
	}
	var requests []ctrl.Request
	for i := range customs.Items {
		requests = append(requests, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&customs.Items[i])})
	}
	return requests
}

// nodeChanged drops what a kubelet reports of its Node every few seconds.
var nodeChanged = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*corev1.Node)
		after, ok2 := e.ObjectNew.(*corev1.Node)
		return !ok || !ok2 ||
			before.Spec.ProviderID != after.Spec.ProviderID ||
			!maps.Equal(before.Labels, after.Labels) ||
			!slices.Equal(before.Status.Addresses, after.Status.Addresses)
	},
}
