package gateway

import (
	"context"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

const (
	machineSecretHeader = headerPrefix + "Machine-Secret"
	// storedIdentityHeader tells a machine that shows no token that this hub knows what to do with its stored identity. An agent
	// that misses it asks for the install script instead of coming again.
	storedIdentityHeader = "X-Drover-Stored-Identity"
	// byMachineSecret finds RKEBootstraps by the hash of the machine's secret.
	byMachineSecret = "machineSecretHash"
)

var errUnknownIdentity = refuse(http.StatusUnauthorized,
	"no machine with this id and secret is known here: its Machine was deleted, or is of another hub; run the install script with a registration token to add the machine anew")

// IndexMachines prepares the look-up of machines that come with their stored identity. It must run before the manager's caches start.
func IndexMachines(ctx context.Context, indexer client.FieldIndexer) error {
	err := indexer.IndexField(ctx, &rkev1.RKEBootstrap{}, byMachineSecret, func(object client.Object) []string {
		if hash := object.GetAnnotations()[rkev1.MachineSecretHashAnnotation]; hash != "" {
			return []string{hash}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("indexing RKEBootstraps by the hash of the machine's secret: %w", err)
	}
	return nil
}

// connectKnown connects a machine that is known, shows its id and secret and has no token: its connection was lost or no longer works.
// The secret is looked up by its hash, so that the time it takes tells nothing about those that exist. No machine is made here.
func (g *registrar) connectKnown(ctx context.Context, _ string, headers http.Header) (*connection, error) {
	registration, err := parseRegistration(headers)
	if err != nil {
		return nil, err
	}
	var cached rkev1.RKEBootstrapList
	if err := g.client.List(ctx, &cached, client.MatchingFields{byMachineSecret: registration.SecretHash}); err != nil {
		return nil, fmt.Errorf("looking up a machine by its secret: %w", err)
	}
	for i := range cached.Items {
		bootstrap := &rkev1.RKEBootstrap{}
		err := g.live.Get(ctx, client.ObjectKeyFromObject(&cached.Items[i]), bootstrap)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("reading RKEBootstrap %s/%s: %w", cached.Items[i].Namespace, cached.Items[i].Name, err)
		}
		if !proves(bootstrap, registration.SecretHash) || !isFor(bootstrap, registration.ID) {
			continue
		}
		if err := g.stays(ctx, bootstrap); err != nil {
			return nil, err
		}
		return g.credentials(ctx, bootstrap)
	}
	return nil, errUnknownIdentity
}

// isFor tells whether an RKEBootstrap is that of an id. One that an infrastructure provider's machine has taken knows no id.
func isFor(bootstrap *rkev1.RKEBootstrap, id string) bool {
	label := bootstrap.Labels[rkev1.MachineIDLabel]
	return label == "" || sameHash(label, rkev1.MachineIDLabelValue(id)) || sameHash(label, id)
}

// stays refuses a machine that has proven itself and that somebody has deleted.
func (g *registrar) stays(ctx context.Context, bootstrap *rkev1.RKEBootstrap) error {
	name := types.NamespacedName{Namespace: bootstrap.Namespace, Name: bootstrap.Name}
	if owner := metav1.GetControllerOf(bootstrap); owner != nil && owner.Kind == "Machine" {
		name.Name = owner.Name
	}
	deleted := refuse(http.StatusGone, "the Machine %s of this machine has been deleted; run the install script with a registration token to add the machine anew", name)
	machine := &clusterv1.Machine{}
	err := g.live.Get(ctx, name, machine)
	switch {
	case apierrors.IsNotFound(err):
		return deleted
	case err != nil:
		return fmt.Errorf("reading Machine %s: %w", name, err)
	case !machine.DeletionTimestamp.IsZero() || !bootstrap.DeletionTimestamp.IsZero():
		return deleted
	}
	return nil
}
