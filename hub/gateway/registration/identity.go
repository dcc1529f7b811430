package registration

import (
	"context"
	"crypto/subtle"
	"fmt"
	"maps"
	"net/http"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/retry"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/gateway/plandelivery"
	"github.com/drover-dev/drover/hub/identity/tokens"
	"github.com/drover-dev/drover/hub/util/fieldowner"
	"github.com/drover-dev/drover/hub/util/response"
)

// MachineSecretHeader is the header with the secret by which a machine proves its identity.
const MachineSecretHeader = headerPrefix + "Machine-Secret"

// byMachineSecret finds RKEBootstraps by the hash of the machine's secret.
const byMachineSecret = "machineSecretHash"

// A machine's ID and a registration token are both seen by many, and together they must not be enough to get the credentials of a machine
// that exists already. A machine that registers for the first time therefore sends a secret, of which the hub keeps the hash.
var (
	// errUnproven answers every registration of a known machine that does not come from that machine.
	errUnproven = response.Errorf(http.StatusUnauthorized,
		"a machine with this id is registered already, and the secret of this one is not that machine's; "+
			"delete its Machine, or give this machine an id of its own (remove its cattle-id file)")
	errUnknownIdentity = response.Errorf(http.StatusUnauthorized,
		"no machine with this id and secret is known here: its Machine was deleted, or belongs to another hub; "+
			"run the install script with a registration token to add the machine again")
)

// SetupIndexes adds the index that finds a machine by its stored identity. It must run before the caches start.
func SetupIndexes(ctx context.Context, indexer client.FieldIndexer) error {
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

// Recognizes reports from memory whether a request shows a token to register with, or the secret of a known machine. It decides only with
// whom the caller shares a rate limit: the token may have expired, or be for something else.
func (g *Registrar) Recognizes(ctx context.Context, token string, headers http.Header) bool {
	if token != "" {
		return g.RecognizesToken(token)
	}
	if !g.Secrets.Synced() {
		return false
	}
	registration, err := parseRegistration(headers)
	if err != nil || registration.SecretHash == "" {
		return false
	}
	var known rkev1.RKEBootstrapList
	err = g.Client.List(ctx, &known, client.MatchingFields{byMachineSecret: registration.SecretHash})
	return err == nil && len(known.Items) > 0
}

// RecognizesToken reports from memory whether a token is a bootstrap token or a registration token.
func (g *Registrar) RecognizesToken(token string) bool {
	return token != "" && len(token) <= tokens.MaxLength && (len(g.Secrets.BootstrapToken(token)) > 0 ||
		g.Secrets.Registrations.Match(token) != nil)
}

// stored returns the RKEBootstrap of a machine that shows its id and secret instead of a token: its connection was lost or is no longer
// valid. The secret is looked up by its hash, so that the time reveals nothing about existing ones.
func (g *Registrar) stored(ctx context.Context, headers http.Header) (*rkev1.RKEBootstrap, error) {
	registration, err := parseRegistration(headers)
	if err != nil {
		return nil, err
	}
	bootstraps, err := g.proven(ctx, registration)
	if err != nil {
		return nil, err
	}
	// Copied machines share id and secret, and one that was moved to another cluster may have left an RKEBootstrap behind.
	refused := error(errUnknownIdentity)
	var retained []*rkev1.RKEBootstrap
	for _, bootstrap := range bootstraps {
		switch err := g.checkRetained(ctx, bootstrap); {
		case err == nil:
			retained = append(retained, bootstrap)
		case response.IsCode(err, http.StatusGone):
			refused = err
		default:
			return nil, err
		}
	}
	switch len(retained) {
	case 0:
		return nil, refused
	case 1:
		return retained[0], nil
	}
	return nil, response.Errorf(http.StatusConflict, "%d machines are registered with this id and secret, which is ambiguous; "+
		"run the install script with a registration token, on a copied machine after removing its cattle-id and machine-secret", len(retained))
}

// proven returns the RKEBootstraps that a machine proves to be: those with its id, or else those without an id.
func (g *Registrar) proven(ctx context.Context, registration *registration) ([]*rkev1.RKEBootstrap, error) {
	var cached rkev1.RKEBootstrapList
	if err := g.Client.List(ctx, &cached, client.MatchingFields{byMachineSecret: registration.SecretHash}); err != nil {
		return nil, fmt.Errorf("looking up a machine by its secret: %w", err)
	}
	var named, nameless []*rkev1.RKEBootstrap
	for i := range cached.Items {
		bootstrap := &rkev1.RKEBootstrap{}
		if err := g.get(ctx, client.ObjectKeyFromObject(&cached.Items[i]), bootstrap, nil); err != nil {
			return nil, err
		}
		label := bootstrap.Labels[rkev1.MachineIDLabel]
		switch {
		case !proves(bootstrap, registration.SecretHash):
		case sameHash(label, rkev1.MachineIDLabelValue(registration.ID)), sameHash(label, registration.ID),
			bootstrap.Name == rkev1.MachineRequestName(registration.ID):
			named = append(named, bootstrap)
		case label == "":
			// A machine of an infrastructure provider, which was created before it had an id.
			nameless = append(nameless, bootstrap)
		}
	}
	if len(named) > 0 {
		return named, nil
	}
	return nameless, nil
}

// checkRetained refuses a machine that has proven its identity and whose Machine was deleted, with 410.
func (g *Registrar) checkRetained(ctx context.Context, bootstrap *rkev1.RKEBootstrap) error {
	name := plandelivery.MachineName(bootstrap)
	deleted := response.Errorf(http.StatusGone, "the Machine %s of this machine has been deleted; "+
		"run the install script with a registration token to add the machine again", name)
	machine := &clusterv1.Machine{}
	if err := g.get(ctx, name, machine, deleted); err != nil {
		return err
	}
	if !machine.DeletionTimestamp.IsZero() || !bootstrap.DeletionTimestamp.IsZero() {
		return deleted
	}
	return nil
}

// proves reports whether a machine that sent a secret with this hash is the one of an RKEBootstrap.
func proves(bootstrap *rkev1.RKEBootstrap, hash string) bool {
	stored := bootstrap.Annotations[rkev1.MachineSecretHashAnnotation]
	return sameHash(stored, hash) && stored != ""
}

func sameHash(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// recordSecretHash records the hash of the secret of a machine that registers for the first time. Of two that register at the same time,
// one has to retry, and to prove its identity then.
func (g *Registrar) recordSecretHash(ctx context.Context, bootstrap *rkev1.RKEBootstrap, hash string) error {
	if hash == "" {
		return nil
	}
	return g.swapAnnotation(ctx, bootstrap, rkev1.MachineSecretHashAnnotation, hash)
}

// swapAnnotation sets an annotation of an object that was read, or removes it if value is empty. If the annotation has been changed since,
// or the object deleted, it answers that the machine has to retry; other changes to the object do not matter.
func (g *Registrar) swapAnnotation(ctx context.Context, object client.Object, key, value string) error {
	read, kind, name := object, reflect.TypeOf(object).Elem(), client.ObjectKeyFromObject(object)
	changedMeanwhile := response.Retry(response.DefaultRetry, "%s %s was changed at the same time", kind.Name(), name)
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		changed := object.DeepCopyObject().(client.Object)
		annotations := map[string]string{}
		maps.Copy(annotations, object.GetAnnotations())
		if delete(annotations, key); value != "" {
			annotations[key] = value
		}
		changed.SetAnnotations(annotations)
		patch := client.MergeFromWithOptions(object, client.MergeFromWithOptimisticLock{})
		err := g.Client.Patch(ctx, changed, patch, fieldowner.Gateway)
		if !apierrors.IsConflict(err) {
			return err
		}
		object = reflect.New(kind).Interface().(client.Object)
		if err := g.get(ctx, name, object, changedMeanwhile); err != nil {
			return err
		}
		if object.GetUID() != read.GetUID() || !object.GetDeletionTimestamp().Equal(read.GetDeletionTimestamp()) ||
			object.GetAnnotations()[key] != read.GetAnnotations()[key] {
			return changedMeanwhile
		}
		return err
	})
	switch {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return changedMeanwhile
	case err != nil:
		return fmt.Errorf("writing the annotation %s of %s %s: %w", key, kind.Name(), name, err)
	}
	return nil
}
