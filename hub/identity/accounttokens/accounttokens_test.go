package accounttokens

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/go-logr/logr/funcr"
	"k8s.io/apimachinery/pkg/types"
)

func must[T any](t *testing.T) func(T, error) T {
	return func(value T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

// server is an API server that publishes some of its keys.
type server struct {
	t         *testing.T
	keys      map[string]*ecdsa.PrivateKey
	published []string
	err       error
	reads     int
}

func newServer(t *testing.T, ids ...string) *server {
	s := &server{t: t, keys: map[string]*ecdsa.PrivateKey{}, published: ids[:1]}
	for _, id := range ids {
		s.keys[id] = must[*ecdsa.PrivateKey](t)(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	}
	return s
}

func (s *server) fetch(context.Context) ([]byte, error) {
	if s.reads++; s.err != nil {
		return nil, s.err
	}
	var set jose.JSONWebKeySet
	for _, id := range s.published {
		set.Keys = append(set.Keys, jose.JSONWebKey{Key: s.keys[id].Public(), KeyID: id, Algorithm: string(jose.ES256), Use: "sig"})
	}
	return json.Marshal(set)
}

// token is a token as an API server issues it into a Secret, with some claims replaced, and those without a value left out.
func (s *server) token(id string, replaced map[string]any) string {
	s.t.Helper()
	claims := map[string]any{
		"iss": "kubernetes/serviceaccount", "sub": "system:serviceaccount:ns:account", "kubernetes.io/serviceaccount/namespace": "ns",
		"kubernetes.io/serviceaccount/secret.name": "secret", "kubernetes.io/serviceaccount/service-account.name": "account",
		"kubernetes.io/serviceaccount/service-account.uid": "uid",
	}
	maps.Copy(claims, replaced)
	maps.DeleteFunc(claims, func(_ string, value any) bool { return value == nil })
	signing := jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: s.keys[id], KeyID: id}}
	return must[string](s.t)(jwt.Signed(must[jose.Signer](s.t)(jose.NewSigner(signing, nil))).Claims(claims).Serialize())
}

func TestVerify(t *testing.T) {
	s, others := newServer(t, "a"), newServer(t, "a", "c")
	v := New(s.fetch, funcr.New(func(string, string) { t.Error("something was logged") }, funcr.Options{}))
	good := s.token("a", nil)
	want := Claims{Secret: types.NamespacedName{Namespace: "ns", Name: "secret"},
		Account: types.NamespacedName{Namespace: "ns", Name: "account"}, UID: "uid"}
	if got, err := v.Verify(t.Context(), good); err != nil || got != want {
		t.Errorf("got %+v, %v", got, err)
	}
	symmetric := jose.SigningKey{Algorithm: jose.HS256, Key: jose.JSONWebKey{Key: []byte(strings.Repeat("k", 32)), KeyID: "a"}}
	for name, token := range map[string]string{
		"empty": "", "no token": "abc", "cut": good[:len(good)-4], "of another server, with the same key ID": others.token("a", nil),
		"of an unknown key":              others.token("c", nil),
		"of another issuer":              s.token("a", map[string]any{"iss": "https://kubernetes.default.svc"}),
		"expired":                        s.token("a", map[string]any{"exp": time.Now().Add(-time.Minute).Unix()}),
		"not valid yet":                  s.token("a", map[string]any{"nbf": time.Now().Add(time.Minute).Unix()}),
		"for another account":            s.token("a", map[string]any{"sub": "system:serviceaccount:ns:other"}),
		"without a Secret":               s.token("a", map[string]any{"kubernetes.io/serviceaccount/secret.name": nil}),
		"without a namespace":            s.token("a", map[string]any{"kubernetes.io/serviceaccount/namespace": nil}),
		"without a ServiceAccount":       s.token("a", map[string]any{"kubernetes.io/serviceaccount/service-account.name": nil}),
		"without the UID of the account": s.token("a", map[string]any{"kubernetes.io/serviceaccount/service-account.uid": nil}),
		"signed with a shared key": must[string](t)(jwt.Signed(must[jose.Signer](t)(jose.NewSigner(symmetric, nil))).
			Claims(jwt.Claims{Issuer: issuer}).Serialize()),
	} {
		if got, err := v.Verify(t.Context(), token); !errors.Is(err, ErrUnverified) || got != (Claims{}) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	if s.reads != 1 {
		t.Errorf("the keys were read %d times in a moment", s.reads)
	}
}

// TestKeys: keys are read when they are needed, a key that was withdrawn does not count for long, and failures are not repeated for each
// token nor logged for each.
func TestKeys(t *testing.T) {
	s := newServer(t, "a", "b")
	s.err = errors.New("forbidden")
	logged := 0
	v := New(s.fetch, funcr.New(func(_, args string) {
		if logged++; !strings.Contains(args, "forbidden") {
			t.Errorf("logged %s", args)
		}
	}, funcr.Options{}))
	now := time.Now()
	v.now = func() time.Time { return now }
	step := func(what string, wait time.Duration, id string, ok bool, reads int) {
		t.Helper()
		now = now.Add(wait)
		for range 3 {
			if _, err := v.Verify(t.Context(), s.token(id, nil)); (err == nil) != ok {
				t.Errorf("%s: %v", what, err)
			}
		}
		if s.reads != reads {
			t.Errorf("%s: the keys were read %d times, want %d", what, s.reads, reads)
		}
	}
	step("the keys cannot be read", 0, "a", false, 1)
	step("still not", keysPause, "a", false, 2)
	s.err = nil
	step("within the pause", keysPause-1, "a", false, 2)
	step("they can be read", 1, "a", true, 3)
	step("within their life", keysLifetime-1, "a", true, 3)
	step("a key that is not published", 0, "b", false, 4)
	s.published = []string{"b"}
	step("another key is published, within the pause", keysPause-1, "b", false, 4)
	step("after the pause", 1, "b", true, 5)
	step("the withdrawn key", 0, "a", false, 5)
	s.err = errors.New("forbidden")
	step("they are old, and cannot be read again", keysLifetime, "b", false, 6)
	if logged != 2 {
		t.Errorf("%d lines for two times of failure", logged)
	}
}
