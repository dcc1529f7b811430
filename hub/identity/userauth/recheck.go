package userauth

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	utilcache "k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"sigs.k8s.io/controller-runtime/pkg/client"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	"github.com/drover-dev/drover/hub/identity/tokens"
)

const (
	// ConfirmationTime is how long a person's persistent token is valid after its user has last shown another credential to the hub. The
	// management cluster cannot be asked whether somebody is still a user and in which groups, except for ServiceAccounts.
	ConfirmationTime = 7 * 24 * time.Hour
	// ConfirmationLeeway is by how much a confirmation may be ahead of the clock, since another replica may have written it. One that is
	// further ahead is from a time when the clock was wrong, and does not count.
	ConfirmationLeeway = time.Minute
	// accountTTL is how long it is cached whether a ServiceAccount exists, maxAccounts for how many.
	accountTTL  = 10 * time.Second
	maxAccounts = 10000
)

// ErrSuspended is returned for a persistent token that was not revoked, but whose user has not logged in for ConfirmationTime.
var ErrSuspended = errors.New("the persistent token is suspended, since its user has not logged in to the hub for 7 days; " +
	"get any token from the hub with your own credential (kubectl with a kubeconfig of \"hub kubeconfig\", or \"hub token\") to use it again")

// accounts caches which ServiceAccounts exist in the management cluster.
type accounts struct {
	live  client.Reader
	known *utilcache.LRUExpireCache
}

func newAccounts(live client.Reader) *accounts {
	return &accounts{live: live, known: utilcache.NewLRUExpireCache(maxAccounts)}
}

// uid returns the UID of a ServiceAccount; empty for one that does not exist or is being deleted.
func (a *accounts) uid(ctx context.Context, key client.ObjectKey) (types.UID, error) {
	if uid, ok := a.known.Get(key); ok {
		return uid.(types.UID), nil
	}
	account := &corev1.ServiceAccount{}
	err := a.live.Get(ctx, key, account)
	if client.IgnoreNotFound(err) != nil {
		return "", fmt.Errorf("%w: reading ServiceAccount %s: %w", ErrUnavailable, key, err)
	}
	uid := account.UID
	if apierrors.IsNotFound(err) || !account.DeletionTimestamp.IsZero() {
		uid = ""
	}
	a.known.Add(key, uid, accountTTL)
	return uid, nil
}

// recheck refuses a persistent token whose user may no longer exist: a ServiceAccount must exist, a person must have logged in within
// ConfirmationTime.
func (o *ownTokens) recheck(ctx context.Context, claims *tokens.UserClaims, object *managementv3.Token) error {
	if object.Spec.User.Username == HubUser {
		return nil
	}
	if namespace, name, err := serviceaccount.SplitUsername(claims.Username); err == nil {
		uid, err := o.accounts.uid(ctx, client.ObjectKey{Namespace: namespace, Name: name})
		if err == nil && (uid == "" || string(uid) != claims.UID) {
			err = errRevoked
		}
		return err
	}
	confirmed := object.CreationTimestamp.Time
	now := o.now()
	if at := object.Status.ConfirmedAt; at != nil && at.After(confirmed) && at.Sub(now) <= ConfirmationLeeway {
		confirmed = at.Time
	}
	if now.Sub(confirmed) > ConfirmationTime {
		return ErrSuspended
	}
	return nil
}

// currentGroups returns the groups of a token that its user was still in at the last login.
func currentGroups(claimed, confirmed []string) []string {
	return slices.DeleteFunc(slices.Clone(claimed), func(group string) bool { return !slices.Contains(confirmed, group) })
}
