package registration

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	"github.com/drover-dev/drover/hub/gateway/secretcache"
	"github.com/drover-dev/drover/hub/identity/tokens"
	"github.com/drover-dev/drover/hub/util/fieldowner"
	"github.com/drover-dev/drover/hub/util/response"
)

// Tokens checks registration tokens, and counts the uses of those that may be used a number of times.
type Tokens struct {
	secrets secretcache.RegistrationTokens
	// live reads token Secrets from the API, client reads ClusterRegistrationTokens from a cache and writes who has used a token.
	live   client.Reader
	client client.Client
	now    func() time.Time
	log    logr.Logger
	// unknown has an element for each unknown token that the caches have time to learn of.
	unknown chan struct{}
	// ahead knows the tokens that the caches may not have yet.
	ahead *ahead
}

const (
	// unknownFor is how long a token may be ahead of the caches: its user may have it a moment before, and on a busy hub for seconds.
	unknownFor, unknownAgain = 10 * time.Second, 100 * time.Millisecond
	// maxUnknown is how many tokens may have that time at once. Anybody can show one that never was issued; others are asked to come again.
	maxUnknown = 32
)

// newTokens returns Tokens that read from the caches of opts.
func newTokens(opts Options) *Tokens {
	return &Tokens{secrets: opts.Secrets.Registrations, live: opts.Live, client: opts.Client, now: time.Now, log: opts.Logger,
		unknown: make(chan struct{}, maxUnknown), ahead: newAhead(opts)}
}

// ErrUnknownToken is returned for every token that is not one of this hub.
var ErrUnknownToken = response.Errorf(http.StatusUnauthorized,
	"the registration token is unknown: it was mistyped, replaced, or its cluster was deleted")

// errNotKnownYet is returned for a token that may be ahead of the caches and cannot wait for them, since many others do or the hub stops.
var errNotKnownYet = response.Retry(response.DefaultRetry, "the registration token is not known yet")

// Find returns the ClusterRegistrationToken of a token: ErrUnknownToken if there is none, another 401 if it has expired, 403 if it is
// for another purpose, and 503 while it may be ahead of the caches, or many tokens are unknown. An expired token has an error of its own
// since its holder is not guessing.
func (t *Tokens) Find(
	ctx context.Context, token string, purpose managementv3.RegistrationPurpose,
) (found *managementv3.ClusterRegistrationToken, err error) {
	err = t.whileUnknown(ctx, token, func() error {
		found, err = t.find(ctx, token, purpose)
		return err
	})
	return found, err
}

// whileUnknown looks a token up until it is not unknown, for some seconds if it has the form of one that a hub of Drover issues. It asks
// again and again, in memory: what it waits for is in several caches. A client would take a 401 for final, so that a token which may be
// ahead of the caches gets none.
func (t *Tokens) whileUnknown(ctx context.Context, token string, lookUp func() error) error {
	evaluate := func() error { return t.ahead.evaluate(ctx, token, lookUp) }
	err := evaluate()
	if !isUnknown(err) || !tokens.IsRegistrationToken(token) && !tokens.IsBootstrapToken(token) {
		return err
	}
	select {
	case t.unknown <- struct{}{}:
		defer func() { <-t.unknown }()
	default:
		return errNotKnownYet
	}
	t.ahead.note(ctx, token)
	for end := time.Now().Add(unknownFor); isUnknown(err) && time.Now().Before(end); err = evaluate() {
		select {
		case <-ctx.Done():
			if isAhead(err) {
				return err
			}
			return errNotKnownYet
		case <-time.After(unknownAgain):
		}
	}
	return err
}

// find looks a token up once.
func (t *Tokens) find(
	ctx context.Context, token string, purpose managementv3.RegistrationPurpose,
) (*managementv3.ClusterRegistrationToken, error) {
	match := t.secrets.Match(token)
	if match == nil {
		return nil, ErrUnknownToken
	}
	found, err := t.object(ctx, match.Secret)
	if err != nil {
		return nil, err
	}
	if err := t.checkExpiry(match); err != nil {
		return nil, err
	}
	if !found.Spec.Serves(purpose) {
		return nil, response.Errorf(http.StatusForbidden, "this registration token is for %s only", strings.ToLower(string(found.Spec.Purpose)))
	}
	return found, nil
}

// object returns the ClusterRegistrationToken of a token Secret. It must be for the cluster whose namespace it is in: whoever may create
// registration tokens for one cluster must not get into another one.
func (t *Tokens) object(ctx context.Context, secret *corev1.Secret) (*managementv3.ClusterRegistrationToken, error) {
	name, isToken := strings.CutPrefix(secret.Name, managementv3.TokenSecretPrefix)
	if !isToken {
		return nil, ErrUnknownToken
	}
	found := &managementv3.ClusterRegistrationToken{}
	err := t.client.Get(ctx, types.NamespacedName{Namespace: secret.Namespace, Name: name}, found)
	if apierrors.IsNotFound(err) || err == nil && !found.DeletionTimestamp.IsZero() {
		return nil, ErrUnknownToken
	}
	if err != nil {
		return nil, fmt.Errorf("reading ClusterRegistrationToken %s/%s: %w", secret.Namespace, name, err)
	}
	if found.Namespace != found.Spec.ClusterName {
		t.log.Info("Registration token refused: it is not in the namespace of its cluster", "ClusterRegistrationToken",
			client.ObjectKeyFromObject(found))
		return nil, ErrUnknownToken
	}
	return found, nil
}

// checkExpiry refuses a token that has expired. A current token may have no expiry. A previous one always has, unless another hub wrote
// it, which meant it to be valid for ever.
func (t *Tokens) checkExpiry(match *secretcache.RegistrationMatch) error {
	end := match.Registration.ExpiresAt
	if !match.Current {
		end = match.Registration.GraceExpiresAt
	}
	switch {
	case end.IsZero() && (match.Current || match.Registration.Previous.ID == "" && !match.Registration.Whole):
		return nil
	case end.IsZero() || end.Unix() == 0:
		t.log.Info("Registration token refused: its expiry cannot be read", "Secret", client.ObjectKeyFromObject(match.Secret))
		return response.Errorf(http.StatusUnauthorized,
			"the registration token is no longer valid; run `hub node-command` again and use the new command")
	case t.now().Before(end):
		return nil
	}
	return response.Errorf(http.StatusUnauthorized,
		"the registration token expired at %s; run `hub node-command` again and use the new command",
		end.UTC().Format(time.RFC3339))
}

// Use counts a new user of a token with spec.maxUses, and refuses it with 401 once the token is used up. The user is written into the
// token's Secret before anything is created for him, so that no two take the last use, and one who retries is not counted twice. Only a
// hash of identity is kept.
func (t *Tokens) Use(ctx context.Context, token *managementv3.ClusterRegistrationToken, identity string) error {
	if token.Spec.MaxUses <= 0 {
		return nil
	}
	user := tokens.Hash(identity)[:16]
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error { return t.recordUse(ctx, token, user) })
	if apierrors.IsConflict(err) {
		return response.Retry(response.DefaultRetry, "the registration token is being used by others at the same time")
	}
	return err
}

// recordUse fails with a conflict if another user was counted in between.
func (t *Tokens) recordUse(ctx context.Context, token *managementv3.ClusterRegistrationToken, user string) error {
	secret, err := t.secretOf(ctx, token)
	if err != nil {
		return err
	}
	registration := tokens.DecodeSecret(secret.Data)
	if slices.Contains(registration.UsedBy, user) {
		return nil
	}
	if err := checkUses(token, registration); err != nil {
		return err
	}
	changed := secret.DeepCopy()
	registration.UsedBy = append(registration.UsedBy, user)
	changed.Data[managementv3.UsedByKey] = registration.Encode()[managementv3.UsedByKey]
	err = t.client.Patch(ctx, changed, client.MergeFromWithOptions(secret, client.MergeFromWithOptimisticLock{}), fieldowner.Gateway)
	if err != nil && !apierrors.IsConflict(err) {
		return fmt.Errorf("counting a use of ClusterRegistrationToken %s/%s: %w", token.Namespace, token.Name, err)
	}
	return err
}

// CheckUses refuses a token that is used up with 401, where an answer to its holder is no use of the token.
func (t *Tokens) CheckUses(ctx context.Context, token *managementv3.ClusterRegistrationToken) error {
	if token.Spec.MaxUses <= 0 {
		return nil
	}
	secret, err := t.secretOf(ctx, token)
	if err != nil {
		return err
	}
	return checkUses(token, tokens.DecodeSecret(secret.Data))
}

func checkUses(token *managementv3.ClusterRegistrationToken, registration tokens.Registration) error {
	if int64(len(registration.UsedBy)) < token.Spec.MaxUses {
		return nil
	}
	return response.Errorf(http.StatusUnauthorized,
		"the registration token has been used up: spec.maxUses of ClusterRegistrationToken %s/%s is %d; create another one",
		token.Namespace, token.Name, token.Spec.MaxUses)
}

// secretOf reads the Secret of a ClusterRegistrationToken from the API.
func (t *Tokens) secretOf(ctx context.Context, token *managementv3.ClusterRegistrationToken) (*corev1.Secret, error) {
	name := types.NamespacedName{Namespace: token.Namespace, Name: managementv3.TokenSecretPrefix + token.Name}
	secret := &corev1.Secret{}
	err := t.live.Get(ctx, name, secret)
	switch {
	case apierrors.IsNotFound(err):
		return nil, ErrUnknownToken
	case err != nil:
		return nil, fmt.Errorf("reading Secret %s: %w", name, err)
	}
	return secret, nil
}
