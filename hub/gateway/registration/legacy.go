package registration

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"regexp"

	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/util/response"
)

// Rancher's install script sends no machine secret and registers the machine each time it runs, with the agent stopped until the hub
// agrees. docs/adr/0013-legacy-machines.md says what such a machine has to show instead.

// generatedID is what the install scripts make up: 252 random bits. Other IDs were chosen by somebody and can be guessed.
var generatedID = regexp.MustCompile(`^[0-9a-f]{63}$`)

// unprovenMachine returns the RKEBootstrap of a known machine that did not send its secret, if it may register all the same: a machine
// that never had a secret proves itself by its ID, and an administrator can approve any machine. address is the one that the request came
// from.
func (g *Registrar) unprovenMachine(
	ctx context.Context, token *managementv3.ClusterRegistrationToken, cluster *provisioningv1.Cluster, r *registration, address string,
) (*rkev1.RKEBootstrap, error) {
	name := types.NamespacedName{Namespace: cluster.Namespace, Name: rkev1.MachineRequestName(r.ID)}
	bootstrap, machine := &rkev1.RKEBootstrap{}, &clusterv1.Machine{}
	err := g.get(ctx, name, bootstrap, errUnproven)
	if err == nil {
		err = g.get(ctx, name, machine, errUnproven)
	}
	switch {
	case err != nil:
		return nil, err
	case bootstrap.Spec.ClusterName != cluster.Name && proves(bootstrap, r.SecretHash):
		return nil, response.Errorf(http.StatusConflict, "this machine is in the cluster %s/%s already: delete its Machine %s there, run "+
			"`system-agent leave --purge-distribution` on it, which deletes the data of that cluster, and then this command again",
			name.Namespace, bootstrap.Spec.ClusterName, name.Name)
	case bootstrap.Spec.ClusterName != cluster.Name || !bootstrap.DeletionTimestamp.IsZero() || !machine.DeletionTimestamp.IsZero():
		return nil, errUnproven
	}
	// The plan of a machine has the secrets of its roles.
	if excluded := token.Spec.Excluded(rolesOf(func(r role) bool { return bootstrap.Labels[r.label] == "true" })); len(excluded) > 0 {
		return nil, response.Errorf(http.StatusForbidden, "this registration token is not for machines with the role %s, which Machine %s has",
			excluded[0], name)
	}
	switch {
	case sameAddress(machine.Annotations[rkev1.RegisterFromAnnotation], address):
		return bootstrap, g.consumeApproval(ctx, machine, bootstrap, r, address)
	case returnsByID(bootstrap, machine, r, address):
		g.Logger.Info("Machine registers again by its ID", "Machine", name, "client", address)
		return bootstrap, nil
	}
	approval := fmt.Sprintf("kubectl annotate --overwrite -n %s machines.cluster.x-k8s.io %s %s=%s",
		name.Namespace, name.Name, rkev1.RegisterFromAnnotation, address)
	if _, ok := g.refusals.Take(name.String()); ok {
		g.Logger.Info("Registration of a known machine refused: it did not prove its identity. To let it in, run the command",
			"Machine", name, "client", address, "command", approval)
	}
	return nil, response.Errorf(http.StatusUnauthorized,
		"a machine with this id is registered already, and this one did not prove that it is that machine. "+
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

// sameAddress compares IP addresses; anything else is never equal.
func sameAddress(a, b string) bool {
	first, errFirst := netip.ParseAddr(a)
	second, errSecond := netip.ParseAddr(b)
	return errors.Join(errFirst, errSecond) == nil && first.Unmap() == second.Unmap()
}

// consumeApproval removes the approval before it is used, so that it is for one registration. A secret that was sent with that becomes
// the machine's.
func (g *Registrar) consumeApproval(
	ctx context.Context, machine *clusterv1.Machine, bootstrap *rkev1.RKEBootstrap, r *registration, address string,
) error {
	if err := g.swapAnnotation(ctx, machine, rkev1.RegisterFromAnnotation, ""); err != nil {
		return err
	}
	g.Logger.Info("Machine registers again with an administrator's approval",
		"Machine", client.ObjectKeyFromObject(machine), "client", address)
	return g.recordSecretHash(ctx, bootstrap, r.SecretHash)
}
