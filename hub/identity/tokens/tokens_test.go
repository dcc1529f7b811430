package tokens

import (
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func newIssuer(t *testing.T) *Issuer {
	t.Helper()
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	i, err := New(key, func() time.Time { return start })
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func TestBootstrapToken(t *testing.T) {
	machine, another := types.NamespacedName{Namespace: "ns", Name: "one"}, types.NamespacedName{Namespace: "ns", Name: "other"}
	one, other := NewBootstrapToken(machine), NewBootstrapToken(machine)
	if one == other || !IsBootstrapToken(one) || !IsBootstrapToken(strings.TrimRight(one, "=")) ||
		!IsBootstrapToken(AccountBootstrapToken([]byte("ey.token"))) {
		t.Errorf("got %q and %q", one, other)
	}
	if !IsBootstrapTokenOf(machine, one) || !IsBootstrapTokenOf(machine, strings.TrimRight(one, "=")) || IsBootstrapTokenOf(another, one) ||
		IsBootstrapTokenOf(machine, AccountBootstrapToken([]byte("ey.token"))) || IsBootstrapTokenOf(machine, "") {
		t.Error("the token is not of its machine alone")
	}
	if BootstrapTokenHash(one) != BootstrapTokenHash(strings.TrimRight(one, "=")) || BootstrapTokenHash(one) == BootstrapTokenHash(other) {
		t.Error("the hash depends on the padding, or not on the token")
	}
	for _, token := range []string{"", "aaaaaaaaaa." + Hash("x"), one[:20], one + one, "ey.token"} {
		if IsBootstrapToken(token) {
			t.Errorf("%q has the form of a bootstrap token", token)
		}
	}
}

func TestAgentCredential(t *testing.T) {
	i := newIssuer(t)
	agent := Agent{Cluster: "c-m-1", Name: "agent-1", UID: "u1"}
	credential := must[Credential](t)(i.AgentCredential(agent))
	if want := (Credential{credential.Token, start.Add(24 * time.Hour), start.Add(16 * time.Hour)}); credential != want {
		t.Errorf("got %v and %v", credential.ExpiresAt, credential.RenewAfter)
	}
	want := &AgentClaims{Agent: agent, ExpiresAt: credential.ExpiresAt}
	for _, tt := range []struct {
		name string
		at   time.Time
		err  error
	}{
		{name: "at once", at: start},
		{name: "on a replica whose clock is behind", at: start.Add(-30 * time.Second)},
		{name: "before it was made", at: start.Add(-time.Hour), err: ErrForeign},
		{name: "shortly before its end", at: start.Add(24*time.Hour - time.Second)},
		{name: "after its end", at: start.Add(24*time.Hour + 2*time.Minute), err: ErrExpired},
	} {
		got, err := i.VerifyAgent(credential.Token, tt.at)
		if !errors.Is(err, tt.err) || err != nil && tt.err == nil {
			t.Errorf("%s: %v", tt.name, err)
		}
		if errors.Is(err, ErrForeign) {
			continue
		}
		if got == nil || got.Agent != want.Agent || !got.ExpiresAt.Equal(want.ExpiresAt) {
			t.Errorf("%s: got %+v", tt.name, got)
		}
	}
}

func TestUserToken(t *testing.T) {
	i := newIssuer(t)
	user := User{Username: "ann", UID: "7", Groups: []string{"dev", "ops"}, Extra: map[string][]string{"scopes": {"a", "b"}}}
	token := must[string](t)(i.UserToken(user, "c-m-1", time.Hour, "token-1", true))
	got := must[*UserClaims](t)(i.VerifyUser(token, start.Add(59*time.Minute)))
	got.IssuedAt, got.ExpiresAt = got.IssuedAt.UTC(), got.ExpiresAt.UTC()
	want := &UserClaims{User: user, Cluster: "c-m-1", ID: "token-1", Persistent: true, IssuedAt: start, ExpiresAt: start.Add(time.Hour)}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if _, err := i.VerifyUser(token, start.Add(2*time.Hour)); !errors.Is(err, ErrExpired) {
		t.Errorf("after its end: %v", err)
	}
	for _, bad := range []struct {
		user, cluster, id string
		ttl               time.Duration
	}{{"", "c", "i", time.Hour}, {"u", "", "i", time.Hour}, {"u", "c", "", time.Hour}, {"u", "c", "i", 0}} {
		if _, err := i.UserToken(User{Username: bad.user}, bad.cluster, bad.ttl, bad.id, false); err == nil {
			t.Errorf("%+v was signed", bad)
		}
	}
}

// Tokens of other kinds, of other keys, and those that somebody has made up are all the same: none.
func TestForeignTokens(t *testing.T) {
	i, other := newIssuer(t), newIssuer(t)
	agent := must[Credential](t)(i.AgentCredential(Agent{Cluster: "c-m-1", Name: "agent-1", UID: "u1"})).Token
	user := must[string](t)(i.UserToken(User{Username: "ann"}, agentAudience, time.Hour, "x", false))
	foreignAgent := must[Credential](t)(other.AgentCredential(Agent{Cluster: "c-m-1", Name: "agent-1", UID: "u1"})).Token
	foreignUser := must[string](t)(other.UserToken(User{Username: "ann"}, "c-m-1", time.Hour, "x", false))

	hmacSigner := must[jose.Signer](t)(jose.NewSigner(jose.SigningKey{Algorithm: jose.HS256, Key: []byte(strings.Repeat("k", 32))},
		(&jose.SignerOptions{}).WithType(agentType)))
	hmacToken := must[string](t)(jwt.Signed(hmacSigner).Claims(jwt.Claims{Issuer: Name, Subject: "agent-1"}).Serialize())
	unsigned := agent[:strings.LastIndexByte(agent, '.')+1]
	spoilt := agent[:len(agent)-10] + strings.Repeat("A", 10)
	noEnd := must[string](t)(i.sign(agentType, jwt.Claims{Issuer: Name, Audience: jwt.Audience{agentAudience}, Subject: "a"},
		agentClaims{Cluster: "c", UID: "u"}))
	noCluster := must[string](t)(i.sign(agentType, jwt.Claims{
		Issuer: Name, Audience: jwt.Audience{agentAudience}, Subject: "a", Expiry: jwt.NewNumericDate(start.Add(time.Hour))}))

	for name, token := range map[string]string{
		"user's": user, "another hub's": foreignAgent, "with a shared secret": hmacToken, "without signature": unsigned, "spoilt": spoilt,
		"without end": noEnd, "without cluster": noCluster, "empty": "", "registration": i.RegistrationToken("abcdefghij"),
	} {
		if claims, err := i.VerifyAgent(token, start); !errors.Is(err, ErrForeign) || claims != nil {
			t.Errorf("%s token passes for an agent's: %v, %v", name, claims, err)
		}
	}
	for name, token := range map[string]string{"agent's": agent, "another hub's": foreignUser, "empty": ""} {
		if claims, err := i.VerifyUser(token, start); !errors.Is(err, ErrForeign) || claims != nil {
			t.Errorf("%s token passes for a user's: %v, %v", name, claims, err)
		}
	}
}

// What PublicKeys tells is enough to check a token, and no more.
func TestPublicKeys(t *testing.T) {
	i := newIssuer(t)
	var set jose.JSONWebKeySet
	if err := json.Unmarshal(i.PublicKeys(), &set); err != nil {
		t.Fatal(err)
	}
	if len(set.Keys) != 1 || !set.Keys[0].IsPublic() {
		t.Fatalf("%d keys, or a private one", len(set.Keys))
	}
	token := must[string](t)(i.UserToken(User{Username: "ann"}, "c-m-1", time.Hour, "x", false))
	parsed := must[*jwt.JSONWebToken](t)(jwt.ParseSigned(token, []jose.SignatureAlgorithm{jose.EdDSA}))
	var claims jwt.Claims
	if err := parsed.Claims(set, &claims); err != nil || claims.Subject != "ann" {
		t.Errorf("%v, %v", claims, err)
	}
}

func TestRegistrationTokens(t *testing.T) {
	i, other := newIssuer(t), newIssuer(t)
	id := must[string](t)(NewRegistrationID())
	token := i.RegistrationToken(id)
	if RegistrationID(token) != id || token != i.RegistrationToken(id) {
		t.Errorf("the token of %s is found by %q, or is another one the next time", id, RegistrationID(token))
	}
	if token == other.RegistrationToken(id) || token == i.RegistrationToken("abcdefghij") {
		t.Error("another key or another id gives the same token")
	}
	made := []string{token}
	for range 50 {
		made = append(made, must[string](t)(NewRegistrationToken()))
	}
	for _, token := range made {
		if id, secret, _ := strings.Cut(token, "."); RegistrationID(token) != id || len(secret) != 52 || strings.Trim(secret, idAlphabet) != "" {
			t.Errorf("a token of %d characters with a secret of %d", len(token), len(secret))
		}
	}
	slices.Sort(made)
	if len(slices.Compact(made)) != 51 {
		t.Error("the same token twice")
	}
	for _, none := range []string{"", "abcdefghij", "short.secret", "abcdefghiJ.secret", ".secret",
		"bcdfghjklmnpqrstvwxz2456789bcdfghjklmnpqrstvwxz2456789"} {
		if id := RegistrationID(none); id != "" {
			t.Errorf("%q has the id %q", none, id)
		}
	}
}

func TestSameHash(t *testing.T) {
	if SameHash("", "") || SameHash(Hash("a"), Hash("b")) || !SameHash(Hash("a"), Hash("a")) || len(Hash("")) != 64 {
		t.Error("hashes are not compared as they should be")
	}
}

func FuzzVerify(f *testing.F) {
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		f.Fatal(err)
	}
	i, err := New(key, func() time.Time { return start })
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range []string{"", "a.b.c", i.RegistrationToken("abcdefghij"),
		"eyJhbGciOiJFZERTQSIsInR5cCI6ImRyb3Zlci1hZ2VudCtqd3QifQ.e30.AA"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, token string) {
		if _, err := i.VerifyAgent(token, start); err == nil {
			t.Error("a credential was made up")
		}
		if _, err := i.VerifyUser(token, start); err == nil {
			t.Error("a token was made up")
		}
		if id := RegistrationID(token); id != "" && !strings.HasPrefix(token, id+".") {
			t.Errorf("%q has the id %q", token, id)
		}
	})
}
