package plandelivery

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilcache "k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"sigs.k8s.io/controller-runtime/pkg/client"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/gateway/secretcache"
	"github.com/drover-dev/drover/hub/identity/accounttokens"
	"github.com/drover-dev/drover/hub/identity/tokens"
	"github.com/drover-dev/drover/hub/util/response"
)

const (
	// The API's review of a token is cached for reviewTTL, a negative one for rejectionTTL. The ServiceAccount itself is looked up each
	// time, so that a machine that was deleted is refused at once.
	reviewTTL    = 30 * time.Second
	rejectionTTL = 5 * time.Second
	// A token that the hub itself has issued is reviewed issuedReviews times before it is refused, with a pause between them.
	issuedReviews = 4
	issuedPause   = 250 * time.Millisecond
	// recordedUse is how long the hub judges a token itself after it was created, or after the API server has recorded its use, by the day.
	recordedUse = 7 * 24 * time.Hour
	// maxReviews bounds the cached reviews.
	maxReviews = 20000
	// concurrentReviews is how many reviews are asked for at once, less than a connection of HTTP/2 has streams: beyond these, the client
	// opens a connection with a handshake of its own for each request, while ten thousand agents come back after a restart.
	concurrentReviews = 32
	// reviewTimeout is how long a request waits for the review of its token, so that requests do not pile up while the API does not answer.
	reviewTimeout = 20 * time.Second
)

// ErrUnauthorized is returned for every token that is not one of a machine. The reason is not the caller's business.
var ErrUnauthorized = response.Errorf(http.StatusUnauthorized, "the token is missing, wrong, or of a machine that was deleted")

// Machine is an authenticated caller: the holder of a token of a plan ServiceAccount.
type Machine struct {
	// Account names the ServiceAccount, and the plan Secret too, which is the only one that the machine may read and write.
	Account types.NamespacedName
	// Bootstrap is the RKEBootstrap that both were created for. It has name, UID and owners only, since a watch keeps it.
	Bootstrap *rkev1.RKEBootstrap
	token     string
}

// Name is the Machine's name, or that of the RKEBootstrap until Cluster API has set its owner.
func (m *Machine) Name() types.NamespacedName { return MachineName(m.Bootstrap) }

// MachineName is the name of the Machine of an RKEBootstrap, or its own until Cluster API has set its owner.
func MachineName(bootstrap *rkev1.RKEBootstrap) types.NamespacedName {
	name := client.ObjectKeyFromObject(bootstrap)
	if owner := metav1.GetControllerOf(bootstrap); owner != nil && owner.Kind == "Machine" {
		name.Name = owner.Name
	}
	return name
}

// owns fails unless namespace and name are those of the machine's own plan Secret.
func (m *Machine) owns(namespace, name string) error {
	if namespace == m.Account.Namespace && name == m.Account.Name {
		return nil
	}
	return apierrors.NewForbidden(secretResource, name, fmt.Errorf("this machine's Secret is %s", m.Account))
}

// mayRead reports whether a Secret with the name of the machine's plan was created for the machine. Somebody else may have created one of
// that name before the hub did; a machine that took it for its plan would run his commands.
func (m *Machine) mayRead(secret *corev1.Secret) bool { return m.Bootstrap.Owns(secret) }

// Authenticator finds the machine that a token belongs to.
type Authenticator struct {
	// review asks the API whose token it is; ok is false for a token that it does not know.
	review func(ctx context.Context, token string) (user authenticationv1.UserInfo, ok bool, err error)
	// cached reads ServiceAccounts and RKEBootstraps from a cache, live from the API.
	cached, live client.Reader
	// issued returns the Secrets that hold a token: those of tokens that were issued and not revoked.
	issued func(token string) []*corev1.Secret
	// verify verifies signature and claims of a token that is kept in a Secret.
	verify func(ctx context.Context, token string) (accounttokens.Claims, error)
	now    func() time.Time
	// reviews has a review for each token that was shown lately, by hash.
	reviews *utilcache.LRUExpireCache
	// reviewing has an element for each review that is asked for now.
	reviewing chan struct{}
}

// review says whose a token is: the ServiceAccount that it belongs to, with its UID, if ok.
type review struct {
	account types.NamespacedName
	uid     types.UID
	ok      bool
}

// NewAccount returns an empty ServiceAccount to read into, or to watch: metadata only, of which one cache serves the controllers too.
func NewAccount() *metav1.PartialObjectMetadata {
	account := &metav1.PartialObjectMetadata{}
	account.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ServiceAccount"))
	return account
}

// NewAuthenticator returns an Authenticator. c creates TokenReviews and reads from a cache, live reads from the API, issued returns from
// memory the Secrets that hold a token, and verifier verifies a token that one holds.
func NewAuthenticator(
	c client.Client, live client.Reader, issued func(token string) []*corev1.Secret, verifier *accounttokens.Verifier,
) *Authenticator {
	return &Authenticator{
		cached: c, live: live, issued: issued, verify: verifier.Verify, now: time.Now,
		reviews: utilcache.NewLRUExpireCache(maxReviews), reviewing: make(chan struct{}, concurrentReviews),
		review: func(ctx context.Context, token string) (authenticationv1.UserInfo, bool, error) {
			review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
			if err := c.Create(ctx, review); err != nil {
				return authenticationv1.UserInfo{}, false, fmt.Errorf("reviewing a token: %w", err)
			}
			return review.Status.User, review.Status.Authenticated, nil
		},
	}
}

// Recognizes reports without asking the API whether a token is known: it was issued by the hub, or was valid a moment ago.
func (a *Authenticator) Recognizes(token string) bool {
	if token == "" || len(token) > tokens.MaxLength {
		return false
	}
	cached, found := a.reviews.Get(sha256.Sum256([]byte(token)))
	return found && cached.(review).ok || len(a.issued(token)) > 0
}

// Authenticate returns the machine that a token belongs to, or ErrUnauthorized.
func (a *Authenticator) Authenticate(ctx context.Context, token string) (*Machine, error) {
	reviewed, err := a.reviewed(ctx, token)
	if err != nil {
		return nil, err
	}
	if !reviewed.ok {
		return nil, ErrUnauthorized
	}
	account := NewAccount()
	if err := a.read(ctx, reviewed.account, reviewed.uid, account); err != nil {
		return nil, err
	}
	owner := rkev1.BootstrapOwner(account)
	if owner == nil || account.Name != rkev1.PlanSecretName(owner.Name) {
		return nil, ErrUnauthorized
	}
	bootstrap := &rkev1.RKEBootstrap{}
	if err := a.read(ctx, types.NamespacedName{Namespace: account.Namespace, Name: owner.Name}, owner.UID, bootstrap); err != nil {
		return nil, err
	}
	// A machine that is being deleted reports until the end; its account is deleted first.
	if !account.DeletionTimestamp.IsZero() {
		return nil, ErrUnauthorized
	}
	return &Machine{Account: reviewed.account, token: token, Bootstrap: &rkev1.RKEBootstrap{ObjectMeta: metav1.ObjectMeta{
		Namespace: bootstrap.Namespace, Name: bootstrap.Name, UID: bootstrap.UID, OwnerReferences: bootstrap.OwnerReferences,
	}}}, nil
}

// read reads an object that must have the UID. A machine that has just registered may be ahead of the cache.
func (a *Authenticator) read(ctx context.Context, key types.NamespacedName, uid types.UID, into client.Object) error {
	err := a.cached.Get(ctx, key, into)
	if apierrors.IsNotFound(err) || err == nil && into.GetUID() != uid {
		err = a.live.Get(ctx, key, into)
	}
	switch {
	case apierrors.IsNotFound(err) || err == nil && (into.GetUID() != uid || uid == ""):
		return ErrUnauthorized
	case err != nil:
		return fmt.Errorf("reading the ServiceAccount or RKEBootstrap %s: %w", key, err)
	}
	return nil
}

// reviewed returns whose a token is. The API is asked only about tokens that the hub cannot judge itself.
func (a *Authenticator) reviewed(ctx context.Context, token string) (review, error) {
	if token == "" || len(token) > tokens.MaxLength {
		return review{}, nil
	}
	if own := a.ownReview(ctx, token); own.ok {
		return own, nil
	}
	return a.cachedReview(ctx, token)
}

// ownReview judges a token by what the hub has in memory, as the API server would (docs/adr/0035-tokens-of-machines.md). It says nothing
// against a token: the hub may not know of it yet.
func (a *Authenticator) ownReview(ctx context.Context, token string) review {
	secrets := a.issued(token)
	if len(secrets) == 0 {
		return review{}
	}
	claims, err := a.verify(ctx, token)
	if err != nil {
		return review{}
	}
	for _, secret := range secrets {
		if client.ObjectKeyFromObject(secret) == claims.Secret && secret.DeletionTimestamp.IsZero() &&
			secret.Labels[secretcache.InvalidSinceLabel] == "" && recorded(secret, a.now()) {
			return review{account: claims.Account, uid: claims.UID, ok: true}
		}
	}
	return review{}
}

// recorded reports whether the API server has recorded the use of the token in a Secret within recordedUse, or the token is newer than
// that. An API server deletes tokens that it takes for unused, after a year by default.
func recorded(secret *corev1.Secret, now time.Time) bool {
	used, err := time.Parse(time.DateOnly, secret.Labels[secretcache.LastUsedLabel])
	if err != nil {
		used = secret.CreationTimestamp.Time
	}
	return now.Sub(used) < recordedUse
}

// cachedReview returns the API's review of a token, which may be some seconds old.
func (a *Authenticator) cachedReview(ctx context.Context, token string) (review, error) {
	key := sha256.Sum256([]byte(token))
	if cached, found := a.reviews.Get(key); found {
		return cached.(review), nil
	}
	user, ok, err := a.ask(ctx, token)
	// The API server judges by its own cache, which may not have a token yet that was issued a moment ago.
	for try := 1; err == nil && !ok && try < issuedReviews && len(a.issued(token)) > 0 && ctx.Err() == nil; try++ {
		select {
		case <-ctx.Done():
		case <-time.After(issuedPause):
		}
		user, ok, err = a.ask(ctx, token)
	}
	if err != nil {
		return review{}, err
	}
	reviewed, ttl := review{}, rejectionTTL
	if namespace, name, err := serviceaccount.SplitUsername(user.Username); ok && err == nil {
		reviewed, ttl = review{account: types.NamespacedName{Namespace: namespace, Name: name}, uid: types.UID(user.UID), ok: true}, reviewTTL
	}
	a.reviews.Add(key, reviewed, ttl)
	return reviewed, nil
}

// stillAllowed reports whether a machine may still see its plan; a review by the API is no longer used if fresh. While it cannot be found
// out, the machine may.
func (a *Authenticator) stillAllowed(ctx context.Context, m *Machine, fresh bool) bool {
	if fresh {
		a.reviews.Remove(sha256.Sum256([]byte(m.token)))
	}
	now, err := a.Authenticate(ctx, m.token)
	if err != nil {
		return !errors.Is(err, ErrUnauthorized)
	}
	return now.Account == m.Account && now.Bootstrap.UID == m.Bootstrap.UID
}

// ask asks the API about a token when its turn has come. The error is a *response.Error if there is no answer within reviewTimeout.
func (a *Authenticator) ask(ctx context.Context, token string) (user authenticationv1.UserInfo, ok bool, err error) {
	limited, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	select {
	case a.reviewing <- struct{}{}:
		user, ok, err = a.review(limited, token)
		<-a.reviewing
	case <-limited.Done():
		err = fmt.Errorf("waiting for the review of a token: %w", limited.Err())
	}
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		err = response.Retry(response.DefaultRetry, "the hub could not verify the token within %s", reviewTimeout)
	}
	return user, ok, err
}
