package drivermachine

import (
	"context"
	"encoding/json"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/plan/machinestate"
)

// reportAddresses writes the addresses of a machine that has been created into an annotation of its RKEBootstrap: the machine is given its
// first plan for that, and the Machine of Cluster API has no addresses before it has a Node.
func (m *machines) reportAddresses(ctx context.Context, s *scope) error {
	bootstrap, err := m.bootstrap(ctx, s.machine)
	if err != nil || bootstrap == nil {
		return err
	}
	var addresses machinestate.Addresses
	for _, a := range s.stored.progress.Addresses {
		if a.Internal {
			addresses.Internal = append(addresses.Internal, a.Address)
		} else {
			addresses.External = append(addresses.External, a.Address)
		}
	}
	value, err := json.Marshal(addresses)
	if err != nil {
		return fmt.Errorf("encoding the addresses: %w", err)
	}
	if bootstrap.Annotations[rkev1.InfrastructureAddressesAnnotation] == string(value) {
		return nil
	}
	before := bootstrap.DeepCopy()
	if bootstrap.Annotations == nil {
		bootstrap.Annotations = map[string]string{}
	}
	bootstrap.Annotations[rkev1.InfrastructureAddressesAnnotation] = string(value)
	if err := m.Client.Patch(ctx, bootstrap, client.MergeFrom(before), fieldOwner); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("writing the addresses to RKEBootstrap %s: %w", bootstrap.Name, err)
	}
	return nil
}
