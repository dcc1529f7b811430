package gateway

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
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
)

// registrationTokens finds the ClusterRegistrationToken that a token belongs to.
type registrationTokens struct {
	// secrets are the token Secrets of all clusters.
	secrets cache.Store
	tokens  client.Reader
	now     func() time.Time
	log     logr.Logger
}

// errUnknownToken answers for every token that is none. It costs the same for all of them.
var errUnknownToken = refuse(http.StatusUnauthorized, "the registration token is unknown: it was mistyped, replaced, or its cluster was deleted")

// find returns the ClusterRegistrationToken that the token was made for. A token that was good once is told apart from one that never
// was, since its holder is no stranger.
func (t *registrationTokens) find(ctx context.Context, token string) (*managementv3.ClusterRegistrationToken, error) {
	var match *corev1.Secret
	var refusal error
	sum := sha256.Sum256([]byte(token))
	// All Secrets are compared, each in constant time, so that the time taken tells nothing about any of them.
	for _, obj := range t.secrets.List() {
		secret, ok := obj.(*corev1.Secret)
		if !ok {
			continue
		}
		current, previous := equalToken(sum, secret.Data[managementv3.TokenKey]), equalToken(sum, secret.Data[managementv3.PreviousTokenKey])
		if current || previous {
			match, refusal = secret, t.expired(secret, current)
		}
	}
	if match == nil {
		return nil, errUnknownToken
	}
	name, isToken := strings.CutPrefix(match.Name, managementv3.TokenSecretPrefix)
	if !isToken {
		return nil, errUnknownToken
	}
	found := &managementv3.ClusterRegistrationToken{}
	err := t.tokens.Get(ctx, types.NamespacedName{Namespace: match.Namespace, Name: name}, found)
	if apierrors.IsNotFound(err) || err == nil && !found.DeletionTimestamp.IsZero() {
		return nil, errUnknownToken
	}
	if err != nil {
		return nil, fmt.Errorf("reading ClusterRegistrationToken %s/%s: %w", match.Namespace, name, err)
	}
	return found, refusal
}

// expired tells when a token that matched has ended. A token without an end never ends; one that was replaced always has an end.
func (t *registrationTokens) expired(secret *corev1.Secret, current bool) error {
	key := managementv3.ExpiresAtKey
	if !current {
		key = managementv3.GracePeriodExpiresAtKey
	}
	value := string(secret.Data[key])
	if current && value == "" {
		return nil
	}
	end, err := time.Parse(time.RFC3339, value)
	if err != nil {
		t.log.Error(err, "The end of a registration token cannot be read, the token is refused", "Secret", client.ObjectKeyFromObject(secret), "key", key)
		return refuse(http.StatusUnauthorized, "the registration token is no longer valid; copy the command of the cluster anew")
	}
	if t.now().Before(end) {
		return nil
	}
	return refuse(http.StatusUnauthorized, "the registration token expired at %s; copy the command of the cluster anew", end.UTC().Format(time.RFC3339))
}

func equalToken(sum [sha256.Size]byte, token []byte) bool {
	other := sha256.Sum256(token)
	return len(token) > 0 && subtle.ConstantTimeCompare(sum[:], other[:]) == 1
}
