package registration

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/hub/gateway/secretcache"
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

// TestBootstrapTokenAheadOfCache: a bootstrap token is not said to be unknown before the cache has seen what was written when it was first
// shown, since a 401 is final for a machine. That ends, whatever is written meanwhile, as long as the API server answers. The clock is that
// of the test, which nobody waits for.
func TestBootstrapTokenAheadOfCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fixture := tokenFixture(t, time.Now(), nil)
		plans, live := secretcache.NewPlanStore(), &writtenUpTo{version: "7"}
		a := newAhead(Options{Secrets: &secretcache.Cache{Plans: plans}, Live: live})
		find := func(token string, lookUp func() error) error {
			return fixture.whileUnknown(t.Context(), token, a.note, func() error { return a.evaluate(token, lookUp) })
		}
		unknown := func() error { return ErrUnknownToken }
		expect := func(what, token string, want error) {
			t.Helper()
			if err := find(token, unknown); !errors.Is(err, want) {
				t.Errorf("%s: %v, want %v", what, err, want)
			}
		}
		first := base64.RawURLEncoding.EncodeToString(make([]byte, sha256.Size))
		sum := sha256.Sum256(nil)
		second := base64.RawURLEncoding.EncodeToString(sum[:])

		plans.UpdateResourceVersion("6")
		expect("the cache is behind", first, errAhead)
		if !IsGuess(errAhead) || response.IsCode(errAhead, http.StatusUnauthorized) {
			t.Error("whoever guesses is not limited, or a machine takes it for final")
		}
		live.version = "9"
		plans.UpdateResourceVersion("8")
		expect("the cache has seen what there was", first, ErrUnknownToken)
		expect("the cache is behind for another token", second, errAhead)
		time.Sleep(aheadFor)
		expect("the cache stays behind", second, ErrUnknownToken)

		// The cache catches up while a token is looked up, and has it.
		a.shown.Clear()
		looked := 0
		if err := find(second, func() error {
			if looked++; looked == 2 {
				plans.UpdateResourceVersion("9")
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
		a.shown.Clear()
		expect("the API server does not answer", first, errAhead)
		time.Sleep(aheadFor)
		expect("the API server does not answer for long", first, errAhead)
		expect("of another form", "wrong", ErrUnknownToken)
	})
}
