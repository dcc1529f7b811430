package gateway

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	"github.com/drover-dev/drover/hub/tokens"
)

// registrationTokens finds the ClusterRegistrationToken that a token belongs to.
type registrationTokens struct {
	// secrets are the token Secrets of all clusters, by byRegistration.
	secrets cache.Indexer
	// live reads token Secrets as they are now, and client writes who has used a token.
	live   client.Reader
	client client.Client
	now    func() time.Time
	log    logr.Logger
}

// errUnknownToken answers for every token that is none. It costs the same for all of them.
var errUnknownToken = refuse(http.StatusUnauthorized, "the registration token is unknown: it was mistyped, replaced, or its cluster was deleted")

// byRegistration finds token Secrets by the public part of a token. Tokens of other hubs have none and are found by their hash.
const byRegistration = "registration"

func registrationKey(known tokens.Known) string {
	if known.ID != "" {
		return "id/" + known.ID
	}
	return "hash/" + known.Hash
}

func indexRegistration(obj any) ([]string, error) {
	secret, ok := obj.(*corev1.Secret)
	if !ok {
		return nil, fmt.Errorf("indexing %T as a Secret", obj)
	}
	var keys []string
	registration := tokens.DecodeSecret(secret.Data)
	for _, known := range []tokens.Known{registration.Current, registration.Previous} {
		if known.Hash != "" {
			keys = append(keys, registrationKey(known))
		}
	}
	return keys, nil
}

// find returns the ClusterRegistrationToken that the token was made for, if that serves the purpose. A token that was good once is told apart
// from one that never was, since its holder is no stranger.
func (t *registrationTokens) find(ctx context.Context, token string, purpose managementv3.RegistrationPurpose) (*managementv3.ClusterRegistrationToken, error) {
	match := t.match(tokens.Known{ID: tokens.RegistrationID(token), Hash: tokens.Hash(token)})
	if match == nil {
		return nil, errUnknownToken
	}
	found, err := t.object(ctx, match.secret)
	if err != nil {
		return nil, err
	}
	if err := t.expired(match.secret, match.registration, match.current); err != nil {
		return nil, err
	}
	if !found.Spec.Serves(purpose) {
		return nil, refuse(http.StatusForbidden, "this registration token is for %s only", strings.ToLower(string(found.Spec.Purpose)))
	}
	return found, nil
}

// registrationMatch is the Secret that a token is in, as the current or the previous one.
type registrationMatch struct {
	secret       *corev1.Secret
	registration tokens.Registration
	current      bool
}

// match finds the Secret of a token, or nil.
func (t *registrationTokens) match(given tokens.Known) *registrationMatch {
	candidates, err := t.secrets.ByIndex(byRegistration, registrationKey(given))
	if err != nil {
		return nil // there is no such index, and so no token
	}
	var match *registrationMatch
	for _, obj := range candidates {
		secret, ok := obj.(*corev1.Secret)
		if !ok {
			continue
		}
		registration := tokens.DecodeSecret(secret.Data)
		current, previous := tokens.SameHash(registration.Current.Hash, given.Hash), tokens.SameHash(registration.Previous.Hash, given.Hash)
		if current || previous {
			match = &registrationMatch{secret, registration, current}
		}
	}
	return match
}

// object is the ClusterRegistrationToken of a token Secret. It is only ever for the cluster whose namespace it is in: whoever may make
// registration tokens for one cluster must not get into another one by them.
func (t *registrationTokens) object(ctx context.Context, secret *corev1.Secret) (*managementv3.ClusterRegistrationToken, error) {
	name, isToken := strings.CutPrefix(secret.Name, managementv3.TokenSecretPrefix)
	if !isToken {
		return nil, errUnknownToken
	}
	found := &managementv3.ClusterRegistrationToken{}
	err := t.client.Get(ctx, types.NamespacedName{Namespace: secret.Namespace, Name: name}, found)
	if apierrors.IsNotFound(err) || err == nil && !found.DeletionTimestamp.IsZero() {
		return nil, errUnknownToken
	}
	if err != nil {
		return nil, fmt.Errorf("reading ClusterRegistrationToken %s/%s: %w", secret.Namespace, name, err)
	}
	if found.Namespace != found.Spec.ClusterName {
		t.log.Info("Registration token refused: it is not in the namespace of its cluster", "ClusterRegistrationToken", client.ObjectKeyFromObject(found))
		return nil, errUnknownToken
	}
	return found, nil
}

// expired tells when a token that matched has ended. A current token without an end never ends; one that was replaced has an end, unless it
// is of another hub, which meant it to last for ever.
func (t *registrationTokens) expired(secret *corev1.Secret, registration tokens.Registration, current bool) error {
	end := registration.ExpiresAt
	if !current {
		end = registration.GraceExpiresAt
	}
	switch {
	case end.IsZero() && (current || registration.Previous.ID == "" && !registration.Whole):
		return nil
	case end.IsZero() || end.Unix() == 0:
		t.log.Info("Registration token refused: its end cannot be read", "Secret", client.ObjectKeyFromObject(secret))
		return refuse(http.StatusUnauthorized, "the registration token is no longer valid; copy the command of the cluster anew")
	case t.now().Before(end):
		return nil
	}
	return refuse(http.StatusUnauthorized, "the registration token expired at %s; copy the command of the cluster anew", end.UTC().Format(time.RFC3339))
}
