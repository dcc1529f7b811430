package registration

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/client"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	"github.com/drover-dev/drover/hub/gateway/secretcache"
	"github.com/drover-dev/drover/hub/identity/tokens"
	"github.com/drover-dev/drover/hub/util/informers"
	"github.com/drover-dev/drover/hub/util/response"
)

// errAhead and errTokenAhead are returned for a bootstrap token, or a registration token, that is unknown to caches which have not seen yet
// what was written when it was first shown.
var (
	errAhead = response.Retry(response.DefaultRetry, "waiting for the hub to learn of the bootstrap token of this machine; "+
		"it never does if the Machine was deleted or replaced")
	errTokenAhead = response.Retry(response.DefaultRetry, "waiting for the hub to learn of the registration token; "+
		"it never does if the token was mistyped or replaced, or its cluster was deleted")
)

const (
	// aheadFor is how long a token counts as ahead of the caches at most: a cache of which nothing changes may not say how far it is.
	aheadFor = 10 * time.Minute
	// maxShown is of how many tokens it is kept when they were first shown.
	maxShown = 256
)

// ahead tells tokens that are ahead of the caches from those that are unknown. On a hub that makes hundreds of clusters a cache may be
// behind by more than the seconds for which a token is looked up, and a machine that gets a 401 is lost.
type ahead struct {
	live client.Reader
	// bootstraps and registrations report whether all caches in which tokens of that form are looked up have what was written up to a
	// resourceVersion.
	bootstraps, registrations func(ctx context.Context, version string) bool
	// shown has a firstShown for each token, by its hash.
	shown *lru.Cache
}

// firstShown is when a token was first shown, and the resourceVersion up to which objects were written at that time.
type firstShown struct {
	at      time.Time
	version string
}

func newAhead(opts Options) *ahead {
	return &ahead{
		live: opts.Live, shown: lru.New(maxShown),
		bootstraps: func(_ context.Context, version string) bool {
			parsed, err := secretcache.ParseVersion(version)
			return err == nil && opts.Secrets.Plans.Seen(parsed)
		},
		registrations: func(ctx context.Context, version string) bool {
			secrets, secretsKnown := informers.Has(opts.Secrets.Registrations, version)
			objects, objectsKnown := informers.Reached(ctx, opts.Informers, &managementv3.ClusterRegistrationToken{}, version)
			return secrets && secretsKnown && objects && objectsKnown
		},
	}
}

// note remembers that a token was shown. If the API server does not say what it has, it is asked again when the token is shown again.
func (a *ahead) note(ctx context.Context, token string) {
	hash := tokens.BootstrapTokenHash(token)
	if _, known := a.shown.Get(hash); known {
		return
	}
	page := &metav1.PartialObjectMetadataList{}
	page.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("SecretList"))
	if err := a.live.List(ctx, page, client.Limit(1)); err != nil {
		return
	}
	if _, err := secretcache.ParseVersion(page.ResourceVersion); err == nil {
		a.shown.Add(hash, firstShown{time.Now(), page.ResourceVersion})
	}
}

// evaluate looks a token up, and returns errAhead or errTokenAhead instead of ErrUnknownToken while it may be ahead of the caches.
func (a *ahead) evaluate(ctx context.Context, token string, lookUp func() error) error {
	reached, early := a.bootstraps, errAhead
	switch {
	case tokens.IsRegistrationToken(token):
		reached, early = a.registrations, errTokenAhead
	case !tokens.IsBootstrapToken(token):
		return lookUp()
	}
	caughtUp := a.caughtUp(ctx, token, reached) // before the look-up
	err := lookUp()
	if errors.Is(err, ErrUnknownToken) && !caughtUp {
		return early
	}
	return err
}

func (a *ahead) caughtUp(ctx context.Context, token string, reached func(context.Context, string) bool) bool {
	found, known := a.shown.Get(tokens.BootstrapTokenHash(token))
	if !known {
		return false
	}
	shown := found.(firstShown)
	return time.Since(shown.at) > aheadFor || reached(ctx, shown.version)
}

// isAhead reports whether a token is not known yet.
func isAhead(err error) bool { return errors.Is(err, errAhead) || errors.Is(err, errTokenAhead) }

// isUnknown reports whether a token is not known, or not yet.
func isUnknown(err error) bool { return errors.Is(err, ErrUnknownToken) || isAhead(err) }
