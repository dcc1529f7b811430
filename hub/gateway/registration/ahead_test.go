package registration

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/cache"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	"github.com/drover-dev/drover/hub/gateway/secretcache"
	"github.com/drover-dev/drover/hub/identity/tokens"
	"github.com/drover-dev/drover/hub/util/response"
)

// writtenUpTo is an API server whose Secrets were last written at a resourceVersion; without one it does not answer.
type writtenUpTo struct {
	client.Reader
	version string
}

func (w *writtenUpTo) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	if w.version == "" {
		return errors.New("no answer")
	}
	list.SetResourceVersion(w.version)
	return nil
}

// TestTokenAheadOfCache: a token is not said to be unknown before the caches have seen what was written when it was first shown, since a
// 401 is final for a machine. That ends, whatever is written meanwhile, as long as the API server answers. The clock is that of the test,
// which nobody waits for.
func TestTokenAheadOfCache(t *testing.T) {
	bootstrapToken := func(seed string) string {
		sum := sha256.Sum256([]byte(seed))
		return base64.RawURLEncoding.EncodeToString(sum[:])
	}
	registrationToken := func(string) string {
		token, err := tokens.NewRegistrationToken()
		must(t, err)
		return token
	}
	for name, kind := range map[string]struct {
		token func(seed string) string
		early error
		cache func() (opts Options, update func(version string))
	}{
		"bootstrap token": {bootstrapToken, errAhead, func() (Options, func(string)) {
			plans := secretcache.NewPlanStore()
			return Options{Secrets: &secretcache.Cache{Plans: plans}}, plans.UpdateResourceVersion
		}},
		"registration token, its Secret": {registrationToken, errTokenAhead, func() (Options, func(string)) {
			secrets, objects := registrationCaches()
			objects.Bookmark("9")
			return secrets, secrets.Secrets.Registrations.Bookmark
		}},
		"registration token, its ClusterRegistrationToken": {registrationToken, errTokenAhead, func() (Options, func(string)) {
			secrets, objects := registrationCaches()
			secrets.Secrets.Registrations.Bookmark("9")
			return secrets, objects.Bookmark
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				opts, update := kind.cache()
				testAhead(t, opts, update, kind.early, kind.token("first"), kind.token("second"))
			})
		})
	}
}

// registrationCaches are those in which a registration token is looked up.
func registrationCaches() (opts Options, objects cache.Indexer) {
	objects = cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	secrets := secretcache.RegistrationTokens{Indexer: cache.NewIndexer(cache.MetaNamespaceKeyFunc, secretcache.RegistrationIndexers)}
	return Options{Secrets: &secretcache.Cache{Registrations: secrets}, Informers: oneInformer{indexer: objects}}, objects
}

// oneInformer is a cache of ClusterRegistrationTokens.
type oneInformer struct {
	ctrlcache.Informers
	indexer cache.Indexer
}

func (o oneInformer) GetInformer(
	_ context.Context, object client.Object, _ ...ctrlcache.InformerGetOption,
) (ctrlcache.Informer, error) {
	if _, ok := object.(*managementv3.ClusterRegistrationToken); !ok {
		return nil, fmt.Errorf("asked for %T", object)
	}
	return indexed{indexer: o.indexer}, nil
}

type indexed struct {
	ctrlcache.Informer
	indexer cache.Indexer
}

func (i indexed) GetIndexer() cache.Indexer { return i.indexer }

// testAhead shows tokens that are not in a cache, which update tells how far it is.
func testAhead(t *testing.T, opts Options, update func(version string), early error, first, second string) {
	live := &writtenUpTo{version: "7"}
	opts.Live = live
	fixture := tokenFixture(t, time.Now(), nil)
	fixture.ahead = newAhead(opts)
	expect := func(what, token string, want error) {
		t.Helper()
		if err := fixture.whileUnknown(t.Context(), token, func() error { return ErrUnknownToken }); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", what, err, want)
		}
	}

	update("6")
	expect("the cache is behind", first, early)
	if !IsGuess(early) || response.IsCode(early, http.StatusUnauthorized) {
		t.Error("whoever guesses is not limited, or a machine takes it for final")
	}
	live.version = "9"
	update("8")
	expect("the cache has seen what there was", first, ErrUnknownToken)
	expect("the cache is behind for another token", second, early)
	time.Sleep(aheadFor)
	expect("the cache stays behind", second, ErrUnknownToken)

	// The cache catches up while a token is looked up, and has it.
	fixture.ahead.shown.Clear()
	looked := 0
	if err := fixture.whileUnknown(t.Context(), second, func() error {
		if looked++; looked == 2 {
			update("9")
			return ErrUnknownToken // from before
		}
		if looked > 2 {
			return nil
		}
		return ErrUnknownToken
	}); err != nil {
		t.Errorf("the cache catches up: %v", err)
	}
	live.version = ""
	fixture.ahead.shown.Clear()
	expect("the API server does not answer", first, early)
	time.Sleep(aheadFor)
	expect("the API server does not answer for long", first, early)
	expect("of another form", "wrong", ErrUnknownToken)
}
