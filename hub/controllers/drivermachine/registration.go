package drivermachine

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/util/objects"
	"github.com/drover-dev/drover/hub/util/ownership"
)

// clearRegistration lets the machine of the next attempt register in place of that of an attempt that has failed: the gateway takes one
// machine for each RKEBootstrap. Once there is a Node, the registration belongs to that.
func (m *machines) clearRegistration(ctx context.Context, of *clusterv1.Machine) error {
	machine := &clusterv1.Machine{}
	found, err := objects.Get(ctx, m.Client, client.ObjectKeyFromObject(of), machine)
	if err != nil || !found || machine.UID != of.UID {
		return err
	}
	if machine.Status.NodeRef.IsDefined() {
		return fmt.Errorf("Machine %s has the Node %s; delete the Machine to replace it", //nolint:staticcheck // a kind
			machine.Name, machine.Status.NodeRef.Name)
	}
	bootstrap, err := m.bootstrap(ctx, machine)
	if err != nil || bootstrap == nil {
		return err
	}
	// What the cache has of the annotation may be old.
	patch := fmt.Sprintf(`{"metadata":{"uid":%q,"annotations":{%q:null}}}`, bootstrap.UID, rkev1.MachineSecretHashAnnotation)
	err = m.Client.Patch(ctx, bootstrap, client.RawPatch(types.MergePatchType, []byte(patch)), fieldOwner)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("clearing the registration of RKEBootstrap %s: %w", bootstrap.Name, err)
	}
	return nil
}

// bootstrap returns the RKEBootstrap of a Machine; nil if it has none. A name alone proves nothing.
func (m *machines) bootstrap(ctx context.Context, machine *clusterv1.Machine) (*rkev1.RKEBootstrap, error) {
	ref := machine.Spec.Bootstrap.ConfigRef
	if !rkev1.Refers(ref, "RKEBootstrap") {
		return nil, nil //nolint:nilnil
	}
	bootstrap := &rkev1.RKEBootstrap{}
	found, err := objects.Get(ctx, m.Client, client.ObjectKey{Namespace: machine.Namespace, Name: ref.Name}, bootstrap)
	if err != nil || !found || ownership.OfMachine(bootstrap, machine) != nil {
		return nil, err
	}
	return bootstrap, nil
}
