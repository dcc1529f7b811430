package registration

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/hub/gateway/secretcache"
	"github.com/drover-dev/drover/hub/identity/tokens"
	"github.com/drover-dev/drover/hub/util/response"
)

// errAhead is returned for a bootstrap token that is unknown to a cache which has not seen yet what was written when it was first shown.
var errAhead = response.Retry(response.DefaultRetry, "waiting for the hub to learn of the bootstrap token of this machine; "+
	"it never does if the Machine was deleted or replaced")

const (
	// aheadFor is how long a token counts as ahead of the cache at most: a cache of which nothing changes may not say how far it is.
	aheadFor = 10 * time.Minute
	// maxShown is of how many tokens it is kept when they were first shown.
	maxShown = 256
)

// ahead tells bootstrap tokens that are ahead of the cache of plan Secrets from those that are unknown. On a hub that makes hundreds of
// clusters the cache may be behind by more than the seconds for which a token is looked up, and a machine that gets a 401 is lost.
type ahead struct {
	plans *secretcache.PlanStore
	live  client.Reader
	// shown has a firstShown for each token, by its hash.
	shown *lru.Cache
}

// firstShown is when a token was first shown, and the resourceVersion up to which Secrets were written at that time.
type firstShown struct {
	at      time.Time
	version uint64
}

func newAhead(opts Options) *ahead {
	return &ahead{plans: opts.Secrets.Plans, live: opts.Live, shown: lru.New(maxShown)}
}

// note remembers that a token was shown. If the API server does not say what it has, it is asked again when the token is shown again.
func (a *ahead) note(ctx context.Context, token string) {
	hash := tokens.BootstrapTokenHash(token)
	if _, known := a.shown.Get(hash); known || !tokens.IsBootstrapToken(token) {
		return
	}
	page := &metav1.PartialObjectMetadataList{}
	page.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("SecretList"))
	if err := a.live.List(ctx, page, client.Limit(1)); err != nil {
		return
	}
	if version, err := secretcache.ParseVersion(page.ResourceVersion); err == nil {
		a.shown.Add(hash, firstShown{time.Now(), version})
	}
}

// evaluate looks a token up, and returns errAhead instead of ErrUnknownToken while it may be ahead of the cache.
func (a *ahead) evaluate(token string, lookUp func() error) error {
	caughtUp := !tokens.IsBootstrapToken(token) || a.caughtUp(token) // before the look-up
	err := lookUp()
	if errors.Is(err, ErrUnknownToken) && !caughtUp {
		return errAhead
	}
	return err
}

func (a *ahead) caughtUp(token string) bool {
	found, known := a.shown.Get(tokens.BootstrapTokenHash(token))
	if !known {
		return false
	}
	shown := found.(firstShown)
	return a.plans.Seen(shown.version) || time.Since(shown.at) > aheadFor
}

// isUnknown reports whether a token is not known, or not yet.
func isUnknown(err error) bool { return errors.Is(err, ErrUnknownToken) || errors.Is(err, errAhead) }
