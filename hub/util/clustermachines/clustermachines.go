// Package clustermachines lists the Machines of a cluster together with their RKEBootstraps, so that all controllers agree on which
// RKEBootstrap belongs to which Machine.
package clustermachines

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/util/objects"
	"github.com/drover-dev/drover/hub/util/ownership"
)

// Machine is a Machine that names an RKEBootstrap. Both may be the cache's own, and are not to be changed: a cluster may have thousands.
type Machine struct {
	*clusterv1.Machine
	// Bootstrap is nil where the RKEBootstrap does not exist, or belongs to another Machine, whose plan this one must not get.
	Bootstrap *rkev1.RKEBootstrap
}

// List returns the Machines of a cluster that name an RKEBootstrap, in the order in which from lists them. The label by which they are
// found proves nothing: a Machine whose spec.clusterName is another cluster's is left out, until Cluster API corrects the label.
func List(ctx context.Context, from client.Reader, cluster client.ObjectKey) ([]Machine, error) {
	of := &client.ListOptions{Namespace: cluster.Namespace, UnsafeDisableDeepCopy: new(true),
		LabelSelector: labels.SelectorFromSet(labels.Set{clusterv1.ClusterNameLabel: cluster.Name})}
	var machines clusterv1.MachineList
	if err := from.List(ctx, &machines, of); err != nil {
		return nil, fmt.Errorf("listing the cluster's Machines: %w", err)
	}
	var bootstraps rkev1.RKEBootstrapList
	if err := from.List(ctx, &bootstraps, of); err != nil {
		return nil, fmt.Errorf("listing the cluster's RKEBootstraps: %w", err)
	}
	byName := make(map[string]*rkev1.RKEBootstrap, len(bootstraps.Items))
	for i := range bootstraps.Items {
		byName[bootstraps.Items[i].Name] = &bootstraps.Items[i]
	}
	out := make([]Machine, 0, len(machines.Items))
	for i := range machines.Items {
		m := Machine{Machine: &machines.Items[i]}
		ref := m.Spec.Bootstrap.ConfigRef
		if m.Spec.ClusterName != cluster.Name || !rkev1.Refers(ref, "RKEBootstrap") {
			continue
		}
		if m.Bootstrap = byName[ref.Name]; m.Bootstrap == nil {
			// Cluster API may not have set its label yet.
			bootstrap := &rkev1.RKEBootstrap{}
			found, err := objects.Get(ctx, from, client.ObjectKey{Namespace: cluster.Namespace, Name: ref.Name}, bootstrap,
				client.UnsafeDisableDeepCopy)
			if err != nil {
				return nil, err
			}
			if found {
				m.Bootstrap = bootstrap
			}
		}
		if m.Bootstrap != nil && ownership.OfMachine(m.Bootstrap, m.Machine) != nil {
			m.Bootstrap = nil
		}
		out = append(out, m)
	}
	return out, nil
}
