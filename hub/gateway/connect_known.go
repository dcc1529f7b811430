package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
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

// IndexMachines prepares the look-up of machines that come with their stored identity, and of the management Clusters of machines. It must run before the manager's caches start.
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
	if err := indexer.IndexField(ctx, &managementv3.Cluster{}, byOwner, indexOwner); err != nil {
		return fmt.Errorf("indexing management Clusters by their Cluster: %w", err)
	}
	return nil
}

// connectKnown connects a machine that is known, shows its id and secret and has no token: its connection was lost or no longer works.
// No machine is made here.
func (g *registrar) connectKnown(ctx context.Context, headers http.Header) (*connection, error) {
	bootstrap, err := g.stored(ctx, headers)
	if err != nil {
		return nil, err
	}
	return g.credentials(ctx, bootstrap)
}

// stored returns the RKEBootstrap of a machine that shows its id and secret. The secret is looked up by its hash, so that the time it takes
// tells nothing about those that exist.
func (g *registrar) stored(ctx context.Context, headers http.Header) (*rkev1.RKEBootstrap, error) {
	registration, err := parseRegistration(headers)
	if err != nil {
		return nil, err
	}
	bootstraps, err := g.proven(ctx, registration)
	if err != nil {
		return nil, err
	}
	// Machines that were copied share id and secret, and one that was moved to another cluster may have left something behind.
	refused := error(errUnknownIdentity)
	var staying []*rkev1.RKEBootstrap
	for _, bootstrap := range bootstraps {
		switch err := g.stays(ctx, bootstrap); {
		case err == nil:
			staying = append(staying, bootstrap)
		case !isRefusal(err):
			return nil, err
		default:
			refused = err
		}
	}
	switch len(staying) {
	case 0:
		return nil, refused
	case 1:
		return staying[0], nil
	}
	return nil, refuse(http.StatusConflict, "%d machines are registered with this id and secret, and nobody can tell which one this is; "+
		"run the install script with a registration token, on a copied machine after removing its cattle-id and machine-secret", len(staying))
}

// proven returns the RKEBootstraps that a machine proves to be. Where there are some of its id, those that know no id are of others.
func (g *registrar) proven(ctx context.Context, registration *registration) ([]*rkev1.RKEBootstrap, error) {
	var cached rkev1.RKEBootstrapList
	if err := g.client.List(ctx, &cached, client.MatchingFields{byMachineSecret: registration.SecretHash}); err != nil {
		return nil, fmt.Errorf("looking up a machine by its secret: %w", err)
	}
	var named, nameless []*rkev1.RKEBootstrap
	for i := range cached.Items {
		bootstrap := &rkev1.RKEBootstrap{}
		err := g.live.Get(ctx, client.ObjectKeyFromObject(&cached.Items[i]), bootstrap)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("reading RKEBootstrap %s/%s: %w", cached.Items[i].Namespace, cached.Items[i].Name, err)
		}
		label := bootstrap.Labels[rkev1.MachineIDLabel]
		switch {
		case !proves(bootstrap, registration.SecretHash):
		case sameHash(label, rkev1.MachineIDLabelValue(registration.ID)), sameHash(label, registration.ID), bootstrap.Name == rkev1.MachineRequestName(registration.ID):
			named = append(named, bootstrap)
		case label == "":
			// An infrastructure provider's machine: it was made before it had an id.
			nameless = append(nameless, bootstrap)
		}
	}
	if len(named) > 0 {
		return named, nil
	}
	return nameless, nil
}

func isRefusal(err error) bool {
	var refused *refusal
	return errors.As(err, &refused)
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
