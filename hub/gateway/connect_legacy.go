package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"regexp"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// Rancher's install script sends no machine secret and registers the machine each time it runs, with the agent stopped until the hub agrees.
// docs/adr/0013-legacy-machines.md says what such a machine has to show instead.

// generatedID is what the install scripts make up: 252 random bits. Other IDs were chosen by somebody and can be guessed.
var generatedID = regexp.MustCompile(`^[0-9a-f]{63}$`)

// unprovenMachine returns the RKEBootstrap of a machine that is known and did not show its secret, where it is let in all the same: a machine
// that never had a secret returns by its ID, and an administrator can let any machine return.
func (g *registrar) unprovenMachine(ctx context.Context, token *managementv3.ClusterRegistrationToken, cluster *provisioningv1.Cluster, r *registration) (*rkev1.RKEBootstrap, error) {
	name := types.NamespacedName{Namespace: cluster.Namespace, Name: rkev1.MachineRequestName(r.ID)}
	bootstrap, machine := &rkev1.RKEBootstrap{}, &clusterv1.Machine{}
	err := g.live.Get(ctx, name, bootstrap)
	if err == nil {
		err = g.live.Get(ctx, name, machine)
	}
	switch {
	case apierrors.IsNotFound(err):
		return nil, errUnproven
	case err != nil:
		return nil, fmt.Errorf("reading Machine %s and its RKEBootstrap: %w", name, err)
	case bootstrap.Spec.ClusterName != cluster.Name || !bootstrap.DeletionTimestamp.IsZero() || !machine.DeletionTimestamp.IsZero():
		return nil, errUnproven
	}
	// Its plan is worth what its roles are.
	if excluded := token.Spec.Excluded(machineRoles(bootstrap)); len(excluded) > 0 {
		return nil, refuse(http.StatusForbidden, "this registration token is not for machines with the role %s, which Machine %s has", excluded[0], name)
	}
	address := clientAddress(ctx)
	switch {
	case sameAddress(machine.Annotations[rkev1.RegisterFromAnnotation], address):
		return bootstrap, g.consumeApproval(ctx, machine, bootstrap, r)
	case returnsByID(bootstrap, machine, r, address):
		g.log.Info("Machine registers again by its ID", "Machine", name, "client", address)
		return bootstrap, nil
	}
	approval := fmt.Sprintf("kubectl annotate --overwrite -n %s machines.cluster.x-k8s.io %s %s=%s", name.Namespace, name.Name, rkev1.RegisterFromAnnotation, address)
	if _, ok := g.refusals.Take(name.String()); ok {
		g.log.Info("Registration of a known machine refused: it did not prove that it is this machine. If it is, run the command",
			"Machine", name, "client", address, "command", approval)
	}
	return nil, refuse(http.StatusUnauthorized, "a machine with this id is registered already, and this one did not prove that it is that machine. "+
		"If it is, run on the hub: %s. If not, remove its cattle-id file and run this again", approval)
}

// returnsByID accepts the ID as proof from a machine that registered without a secret: the ID is long and random, and the hub shows nothing
// but its hash. Once there is a Node, the machine has to come from one of its addresses as well.
func returnsByID(bootstrap *rkev1.RKEBootstrap, machine *clusterv1.Machine, r *registration, address string) bool {
	if bootstrap.Annotations[rkev1.MachineSecretHashAnnotation] != "" || !generatedID.MatchString(r.ID) ||
		!sameHash(bootstrap.Labels[rkev1.MachineIDLabel], rkev1.MachineIDLabelValue(r.ID)) {
		return false
	}
	if !machine.Status.NodeRef.IsDefined() {
		return true
	}
	for _, known := range machine.Status.Addresses {
		if sameAddress(known.Address, address) {
			return true
		}
	}
	return false
}

// sameAddress compares IP addresses; what is none is like no other.
func sameAddress(a, b string) bool {
	first, errFirst := netip.ParseAddr(a)
	second, errSecond := netip.ParseAddr(b)
	return errors.Join(errFirst, errSecond) == nil && first.Unmap() == second.Unmap()
}

// consumeApproval takes the approval away before it is used, so that it lets one registration in. A secret that came with that is the
// machine's from now on.
func (g *registrar) consumeApproval(ctx context.Context, machine *clusterv1.Machine, bootstrap *rkev1.RKEBootstrap, r *registration) error {
	changed := machine.DeepCopy()
	delete(changed.Annotations, rkev1.RegisterFromAnnotation)
	patch := client.MergeFromWithOptions(machine, client.MergeFromWithOptimisticLock{})
	if err := g.client.Patch(ctx, changed, patch, fieldOwner); err != nil {
		if client.IgnoreNotFound(err) == nil || isConflict(err) {
			return later(comeAgain, "Machine %s was changed at the same moment", client.ObjectKeyFromObject(machine))
		}
		return fmt.Errorf("removing the annotation %s of Machine %s: %w", rkev1.RegisterFromAnnotation, client.ObjectKeyFromObject(machine), err)
	}
	g.log.Info("Machine registers again by an administrator's approval", "Machine", client.ObjectKeyFromObject(machine), "client", clientAddress(ctx))
	return g.remember(ctx, bootstrap, r.SecretHash)
}

// machineRoles are the roles that a machine was registered with.
func machineRoles(bootstrap *rkev1.RKEBootstrap) []managementv3.MachineRole {
	var roles []managementv3.MachineRole
	for _, role := range []struct {
		label string
		role  managementv3.MachineRole
	}{
		{rkev1.EtcdRoleLabel, managementv3.EtcdRole}, {rkev1.ControlPlaneRoleLabel, managementv3.ControlPlaneRole}, {rkev1.WorkerRoleLabel, managementv3.WorkerRole},
	} {
		if bootstrap.Labels[role.label] == "true" {
			roles = append(roles, role.role)
		}
	}
	return roles
}

// clientContextKey finds the address of the client in the context of a registration.
type clientContextKey struct{}

func clientAddress(ctx context.Context) string {
	address, _ := ctx.Value(clientContextKey{}).(string)
	return address
}
