package userauth

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	"github.com/drover-dev/drover/hub/identity/tokens"
)

func newIssuer(t *testing.T) *tokens.Issuer {
	t.Helper()
	issuer, err := tokens.New(ed25519.NewKeyFromSeed([]byte(strings.Repeat("k", ed25519.SeedSize))), time.Now)
	if err != nil {
		t.Fatal(err)
	}
	return issuer
}

func userToken(t *testing.T, issuer *tokens.Issuer, id string, lasting bool) string {
	t.Helper()
	token, err := issuer.UserToken(tokens.User{Username: "jane", UID: "7", Groups: []string{"ops"},
		Extra: map[string][]string{"team": {"blue"}}}, "c-m-1", time.Hour, id, lasting)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func tokenObject(name, token string) *managementv3.Token {
	sum := sha256.Sum256([]byte(token))
	return &managementv3.Token{
		ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.Now()},
		Spec: managementv3.TokenSpec{
			ClusterName: "c-m-1", Hash: hex.EncodeToString(sum[:]), ExpiresAt: metav1.NewTime(time.Now().Add(time.Hour)),
			User: managementv3.TokenUser{Username: "jane", Groups: []string{"ops"}},
		},
	}
}

func TestShortToken(t *testing.T) {
	c := newCluster()
	a := newAuthenticator(t, c)
	got, ok, err := a.AuthenticateRequest(request("Bearer " + userToken(t, newIssuer(t), "x", false)))
	if !ok || err != nil {
		t.Fatalf("refused: %v", err)
	}
	if u := got.User; u.GetName() != "jane" || u.GetUID() != "7" || !cmp.Equal(u.GetGroups(), []string{"ops", "system:authenticated"}) ||
		!cmp.Equal(u.GetExtra(), map[string][]string{"team": {"blue"}}) || !cmp.Equal([]string(got.Audiences), []string{"c-m-1"}) {
		t.Errorf("got %+v for %v", u, got.Audiences)
	}
	if c.reviews != 0 {
		t.Error("the management cluster was asked")
	}
}

// TestForgedToken checks that what claims to be the hub's own and is not goes no further: the management cluster must not see it.
func TestForgedToken(t *testing.T) {
	c := newCluster()
	otherHub, err := tokens.New(ed25519.NewKeyFromSeed([]byte(strings.Repeat("s", ed25519.SeedSize))), time.Now)
	if err != nil {
		t.Fatal(err)
	}
	forged := userToken(t, otherHub, "x", false)
	_, ok, err := newAuthenticator(t, c).AuthenticateRequest(request("Bearer " + forged))
	if ok || err == nil || c.reviews != 0 {
		t.Errorf("%v, %v, %d reviews", ok, err, c.reviews)
	}
	if err != nil && strings.Contains(err.Error(), forged) {
		t.Error("the error repeats the token")
	}
}

func TestPersistentToken(t *testing.T) {
	issuer := newIssuer(t)
	token := userToken(t, issuer, "t-1", true)
	for name, test := range map[string]struct {
		object *managementv3.Token
		// cached reports whether the cache has it already.
		cached bool
		later  time.Duration
		want   error
	}{
		"good":                       {object: tokenObject("t-1", token), cached: true},
		"made a moment ago":          {object: tokenObject("t-1", token)},
		"deleted":                    {want: errRevoked},
		"another one's":              {object: tokenObject("t-1", "another"), cached: true, want: errRevoked},
		"ended before its signature": {object: tokenObject("t-1", token), cached: true, later: time.Minute * 45, want: errRevoked},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAuthenticator(t, newCluster())
			live, cached := a.uses.client, newAuthenticator(t, newCluster()).uses.client
			if test.object != nil {
				if test.later > 0 {
					test.object.Spec.ExpiresAt = metav1.NewTime(time.Now().Add(test.later - time.Minute))
				}
				writers := []client.Client{live}
				if test.cached {
					writers = append(writers, cached)
				}
				for _, writer := range writers {
					if err := writer.Create(t.Context(), test.object.DeepCopy()); err != nil {
						t.Fatal(err)
					}
				}
			}
			used := 0
			own := &ownTokens{
				verifier: issuer, objects: cached, live: live, used: func(*managementv3.Token) { used++ },
				now: func() time.Time { return time.Now().Add(test.later) },
			}
			_, ok, err := own.AuthenticateToken(t.Context(), token)
			if !errors.Is(err, test.want) || ok != (test.want == nil) || used == 0 == ok {
				t.Errorf("%v, %v, %d uses", ok, err, used)
			}
		})
	}
}

// TestHubsOwnUses checks that the hub's controllers, which use their tokens all the time, cost no write at all.
func TestHubsOwnUses(t *testing.T) {
	issuer := newIssuer(t)
	token := userToken(t, issuer, "t-1", true)
	object := tokenObject("t-1", token)
	object.Spec.User.Username = HubUser
	objects := newAuthenticator(t, newCluster()).uses.client
	if err := objects.Create(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	own := &ownTokens{
		verifier: issuer, objects: objects, live: objects, used: func(*managementv3.Token) { t.Error("it is noted") }, now: time.Now,
	}
	if _, ok, err := own.AuthenticateToken(t.Context(), token); !ok || err != nil {
		t.Errorf("%v, %v", ok, err)
	}
}

// TestUses checks that a busy token costs a write every few minutes.
func TestUses(t *testing.T) {
	objects := newAuthenticator(t, newCluster()).uses.client
	token := tokenObject("t-1", "x")
	if err := objects.Create(t.Context(), token); err != nil {
		t.Fatal(err)
	}
	now := time.Unix(1e9, 0)
	u := newUsageRecorder(objects, logr.Discard())
	u.now = func() time.Time { return now }
	use := func() int {
		for range 1000 {
			u.record(token)
		}
		queued := len(u.queue)
		for range queued {
			if err := u.write(t.Context(), <-u.queue); err != nil {
				t.Fatal(err)
			}
		}
		return queued
	}
	if got := use(); got != 1 {
		t.Errorf("%d writes at once", got)
	}
	now = now.Add(writeInterval - time.Second)
	if got := use(); got != 0 {
		t.Errorf("%d writes before the time", got)
	}
	now = now.Add(time.Second)
	if got := use(); got != 1 {
		t.Errorf("%d writes after it", got)
	}
	if err := objects.Get(t.Context(), client.ObjectKeyFromObject(token), token); err != nil || !token.Status.LastUsedAt.Time.Equal(now) {
		t.Errorf("last used %v: %v", token.Status.LastUsedAt, err)
	}
	// Another replica has written it a minute ago.
	now = now.Add(time.Minute)
	u.queued = map[string]time.Time{}
	if got := use(); got != 0 {
		t.Errorf("%d writes after another replica's", got)
	}
	// It was written while the clock was ahead.
	now = now.Add(-24 * time.Hour)
	u.queued = map[string]time.Time{}
	if got := use(); got != 1 {
		t.Errorf("%d writes after the clock was set back", got)
	}
}
