package registration

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/client"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	"github.com/drover-dev/drover/hub/gateway/secretcache"
	"github.com/drover-dev/drover/hub/identity/tokens"
	"github.com/drover-dev/drover/hub/util/response"
)

// tokenReader knows ClusterRegistrationTokens by name.
type tokenReader struct {
	client.Client
	tokens map[client.ObjectKey]*managementv3.ClusterRegistrationToken
}

func (r tokenReader) Get(_ context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	found := r.tokens[key]
	if found == nil {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "clusterregistrationtokens"}, key.Name)
	}
	found.DeepCopyInto(obj.(*managementv3.ClusterRegistrationToken))
	return nil
}

// tokenFixture has token Secrets of namespace c-m-1, each with its ClusterRegistrationToken unless it is named an orphan.
func tokenFixture(t *testing.T, now time.Time, secrets map[string]map[string]string) *Tokens {
	t.Helper()
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, secretcache.RegistrationIndexers)
	reader := tokenReader{tokens: map[client.ObjectKey]*managementv3.ClusterRegistrationToken{}}
	for name, data := range secrets {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "c-m-1", Name: name}, Data: map[string][]byte{}}
		for key, value := range data {
			secret.Data[key] = []byte(value)
		}
		must(t, indexer.Add(secret))
		name = strings.TrimPrefix(name, "crt-token-")
		crt := &managementv3.ClusterRegistrationToken{ObjectMeta: metav1.ObjectMeta{Namespace: "c-m-1", Name: name}}
		crt.Spec.ClusterName = "c-m-1"
		switch name {
		case "deleted":
			crt.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
		case "elsewhere":
			crt.Spec.ClusterName = "c-m-2"
		case "agents":
			crt.Spec.Purpose = managementv3.AgentsPurpose
		case "machines":
			crt.Spec.Purpose = managementv3.MachinesPurpose
		case "orphan":
			continue
		}
		reader.tokens[client.ObjectKeyFromObject(crt)] = crt
	}
	caughtUp := func(context.Context, string) bool { return true }
	return &Tokens{secrets: secretcache.RegistrationTokens{Indexer: indexer}, client: reader, now: func() time.Time { return now },
		log: logr.Discard(), unknown: make(chan struct{}, maxUnknown),
		ahead: &ahead{live: &writtenUpTo{version: "1"}, shown: lru.New(maxShown), bootstraps: caughtUp, registrations: caughtUp}}
}

func TestFindRegistrationToken(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	at := func(d time.Duration) string { return now.Add(d).Format(time.RFC3339) }
	fixture := tokenFixture(t, now, map[string]map[string]string{
		"crt-token-own": fixtureToken("aaaaaaaaaa.own"),
		"crt-token-rotated": {
			"tokenID": "bbbbbbbbbb", "tokenHash": tokens.Hash("bbbbbbbbbb.new"), "expiresAt": at(time.Hour),
			"previousTokenID": "cccccccccc", "previousTokenHash": tokens.Hash("cccccccccc.old"), "gracePeriodExpiresAt": at(time.Minute),
		},
		"crt-token-stale": {
			"tokenID": "dddddddddd", "tokenHash": tokens.Hash("dddddddddd.stale"), "expiresAt": at(-time.Second),
			"previousTokenID": "eeeeeeeeee", "previousTokenHash": tokens.Hash("eeeeeeeeee.staler"), "gracePeriodExpiresAt": at(-time.Hour),
		},
		"crt-token-noend": {"tokenID": "ffffffffff", "tokenHash": "x", "previousTokenID": "gggggggggg",
			"previousTokenHash": tokens.Hash("gggggggggg.noend")},
		"crt-token-twin":    {"tokenID": "aaaaaaaaaa", "tokenHash": tokens.Hash("aaaaaaaaaa.twin")},
		"crt-token-adopted": {"tokenID": "hhhhhhhhhh", "tokenHash": "x", "previousTokenHash": tokens.Hash("adopted")},
		"crt-token-whole":   {"token": "whole", "expiresAt": at(time.Hour), "previousToken": "wholeold", "gracePeriodExpiresAt": at(time.Minute)},
		"crt-token-noend2":  {"token": "x1", "previousToken": "wholenoend"},
		"crt-token-garbled": {"token": "garbled", "expiresAt": "soon"},
		"crt-token-empty":   {"token": "", "previousToken": "", "tokenID": "iiiiiiiiii", "tokenHash": ""},
		"crt-token-deleted": {"token": "deleted"}, "crt-token-orphan": {"token": "orphan"}, "other": {"token": "other"},
		"crt-token-elsewhere": fixtureToken("jjjjjjjjjj.elsewhere"),
		"crt-token-agents":    fixtureToken("kkkkkkkkkk.agents"),
		"crt-token-machines":  fixtureToken("llllllllll.machines"),
	})
	for _, tt := range []struct {
		token, want, err string
		code             int
	}{
		{token: "aaaaaaaaaa.own", want: "own"},
		{token: "aaaaaaaaaa.twin", want: "twin"},
		{token: "aaaaaaaaaa.other", err: "unknown"},
		{token: "aaaaaaaaaa.", err: "unknown"},
		{token: "own", err: "unknown"},
		{token: tokens.Hash("aaaaaaaaaa.own"), err: "unknown"},
		{token: "bbbbbbbbbb.new", want: "rotated"},
		{token: "cccccccccc.old", want: "rotated"},
		{token: "dddddddddd.stale", err: "expired at 2026-01-02T03:04:04Z"},
		{token: "eeeeeeeeee.staler", err: "expired at 2026-01-02T02:04:05Z"},
		{token: "gggggggggg.noend", err: "no longer valid"},
		{token: "adopted", want: "adopted"},
		{token: "whole", want: "whole"},
		{token: "wholeold", want: "whole"},
		{token: "wholenoend", err: "no longer valid"},
		{token: "garbled", err: "no longer valid"},
		{token: "", err: "unknown"},
		{token: "iiiiiiiiii.", err: "unknown"},
		{token: "deleted", err: "unknown"},
		{token: "orphan", err: "unknown"},
		{token: "other", err: "unknown"},
		{token: "wrong", err: "unknown"},
		{token: "whole ", err: "unknown"},
		{token: "jjjjjjjjjj.elsewhere", err: "unknown"},
		{token: "kkkkkkkkkk.agents", err: "for agents only", code: http.StatusForbidden},
		{token: "llllllllll.machines", want: "machines"},
	} {
		got, err := fixture.Find(t.Context(), tt.token, managementv3.MachinesPurpose)
		var refused *response.Error
		switch code := max(tt.code, http.StatusUnauthorized); {
		case tt.err == "" && (err != nil || got.Name != tt.want):
			t.Errorf("%q: %v, %v", tt.token, got, err)
		case tt.err != "" && (!errors.As(err, &refused) || refused.Code != code || !strings.Contains(err.Error(), tt.err)):
			t.Errorf("%q: %v, want %d with %q", tt.token, err, code, tt.err)
		}
	}
}

// fixtureToken is the data of the Secret of a token.
func fixtureToken(token string) map[string]string {
	return map[string]string{"tokenID": tokens.RegistrationID(token), "tokenHash": tokens.Hash(token)}
}

// TestFindNewToken: a token that was issued a moment ago is found as soon as the caches have it. One that never was issued is unknown after
// some seconds. While many wait it is not said to be unknown: its user is to come again.
func TestFindNewToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fixture := tokenFixture(t, time.Now(), map[string]map[string]string{"crt-token-other": {}})
		fixture.unknown = make(chan struct{}, 1)
		token, err := tokens.NewRegistrationToken()
		must(t, err)
		find := func() (string, time.Duration) {
			start := time.Now()
			found, err := fixture.Find(t.Context(), token, managementv3.MachinesPurpose)
			if err != nil {
				return err.Error(), time.Since(start)
			}
			return found.Name, time.Since(start)
		}

		go func() {
			time.Sleep(time.Millisecond)
			if got, took := find(); got != errNotKnownYet.Error() || took != 0 {
				t.Errorf("beside another one: %s after %s", got, took)
			}
		}()
		if got, took := find(); got != ErrUnknownToken.Error() || took != unknownFor {
			t.Errorf("never issued: %s after %s", got, took)
		}
		go func() {
			time.Sleep(2 * time.Second)
			secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "c-m-1", Name: "crt-token-other"}, Data: map[string][]byte{}}
			for key, value := range fixtureToken(token) {
				secret.Data[key] = []byte(value)
			}
			must(t, fixture.secrets.Update(secret))
		}()
		if got, took := find(); got != "other" || took > 3*time.Second {
			t.Errorf("issued a moment ago: %s after %s", got, took)
		}
	})
}

// TestUnknownBootstrapToken: the token in bootstrap data has the same time, since a machine may run before the gateway's cache has it. What
// has no form of a token is refused at once.
func TestUnknownBootstrapToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fixture := tokenFixture(t, time.Now(), nil)
		sum := sha256.Sum256([]byte("token of a ServiceAccount"))
		for token, want := range map[string]time.Duration{
			base64.URLEncoding.EncodeToString(sum[:]): 2 * time.Second, base64.RawURLEncoding.EncodeToString(sum[:]): 2 * time.Second,
			base64.URLEncoding.EncodeToString(sum[1:]): 0, "wrong": 0,
		} {
			start := time.Now()
			err := fixture.whileUnknown(t.Context(), token, func() error {
				if time.Since(start) < 2*time.Second {
					return ErrUnknownToken
				}
				return nil
			})
			if got := time.Since(start); got != want || (err == nil) != (want > 0) {
				t.Errorf("%s: %v after %s, want %s", token, err, got, want)
			}
		}
	})
}
