package usertokens

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	"github.com/drover-dev/drover/hub/identity/userauth"
)

func held(name, who string, groups ...string) *managementv3.Token {
	return &managementv3.Token{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: managementv3.TokenSpec{
			ClusterName: "c-m-a", ExpiresAt: metav1.NewTime(now.Add(time.Hour)), User: managementv3.TokenUser{Username: who, Groups: groups},
		},
	}
}

// Whoever gets a token with his own credential confirms his persistent ones, which lose the groups that he is no longer in.
func TestConfirm(t *testing.T) {
	w := newWorld(t)
	for _, token := range []*managementv3.Token{held("mine", "anna", "ops", "admins"), held("other", "bert", "admins")} {
		if err := w.client.Create(t.Context(), token); err != nil {
			t.Fatal(err)
		}
	}
	if got := w.ask("anna", `{"cluster":"c-m-a"}`); got.Code != http.StatusOK {
		t.Fatal(got.Body)
	}
	token := &managementv3.Token{}
	if err := w.client.Get(t.Context(), client.ObjectKey{Name: "mine"}, token); err != nil {
		t.Fatal(err)
	}
	if at := token.Status.ConfirmedAt; at == nil || !at.Time.Equal(now) || fmt.Sprint(token.Spec.User.Groups) != "[ops]" {
		t.Errorf("confirmed at %v, groups %v", at, token.Spec.User.Groups)
	}
	version := token.ResourceVersion
	if got := w.ask("anna", `{"cluster":"c-m-a"}`); got.Code != http.StatusOK {
		t.Fatal(got.Body)
	}
	if err := w.client.Get(t.Context(), client.ObjectKey{Name: "mine"}, token); err != nil || token.ResourceVersion != version {
		t.Errorf("it is written again a moment later: %v", err)
	}
	if err := w.client.Get(t.Context(), client.ObjectKey{Name: "other"}, token); err != nil || token.Status.ConfirmedAt != nil ||
		len(token.Spec.User.Groups) != 1 {
		t.Errorf("the token of somebody else: %+v, %v", token, err)
	}
}

// A confirmation from a time when the clock was ahead does not count, so that the next one is written.
func TestConfirmAfterTheClockWasAhead(t *testing.T) {
	for ahead, want := range map[time.Duration]time.Duration{
		userauth.ConfirmationLeeway:      userauth.ConfirmationLeeway, // by another replica
		2 * userauth.ConfirmationLeeway:  0,
		30 * 24 * time.Hour:              0,
		-confirmInterval + time.Second:   -confirmInterval + time.Second,
		-confirmInterval:                 0,
		-confirmInterval - 2*time.Minute: 0,
	} {
		w := newWorld(t)
		token := held("mine", "anna")
		if err := w.client.Create(t.Context(), token); err != nil {
			t.Fatal(err)
		}
		confirmed := metav1.NewTime(now.Add(ahead))
		token.Status.ConfirmedAt = &confirmed
		if err := w.client.Status().Update(t.Context(), token); err != nil {
			t.Fatal(err)
		}
		if got := w.ask("anna", `{"cluster":"c-m-a"}`); got.Code != http.StatusOK {
			t.Fatal(got.Body)
		}
		if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(token), token); err != nil {
			t.Fatal(err)
		}
		if at := token.Status.ConfirmedAt; at == nil || !at.Time.Equal(now.Add(want)) {
			t.Errorf("confirmed %s ahead of the clock: the next confirmation is %v, want %s", ahead, at, now.Add(want))
		}
	}
}

// A Token that cannot be written is not confirmed while it has a group too many; the user gets a token all the same.
func TestConfirmFails(t *testing.T) {
	w := newWorld(t)
	for _, token := range []*managementv3.Token{held("a", "anna", "left"), held("b", "anna", "left")} {
		if err := w.client.Create(t.Context(), token); err != nil {
			t.Fatal(err)
		}
	}
	w.Client = interceptor.NewClient(w.client.(client.WithWatch), interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if o.GetName() == "a" {
				return errors.New("no API")
			}
			return c.Patch(ctx, o, patch, opts...)
		},
	})
	if got := w.ask("anna", `{"cluster":"c-m-a"}`); got.Code != http.StatusOK {
		t.Errorf("%d %s", got.Code, got.Body)
	}
	for name, confirmed := range map[string]bool{"a": false, "b": true} {
		token := &managementv3.Token{}
		if err := w.client.Get(t.Context(), client.ObjectKey{Name: name}, token); err != nil {
			t.Fatal(err)
		}
		if (token.Status.ConfirmedAt != nil) != confirmed || (len(token.Spec.User.Groups) == 0) != confirmed {
			t.Errorf("Token %s: %+v", name, token)
		}
	}
}

func TestTokensPerUser(t *testing.T) {
	w := newWorld(t)
	for i := range MaxPerUser {
		if err := w.client.Create(t.Context(), held(fmt.Sprint("t-", i), "anna")); err != nil {
			t.Fatal(err)
		}
	}
	const persistent = `{"cluster":"c-m-a","ttlSeconds":86400,"lasting":true}`
	if got := w.ask("anna", persistent); got.Code != http.StatusForbidden || !strings.Contains(got.Body.String(), "hub tokens revoke") {
		t.Errorf("%d %s", got.Code, got.Body)
	}
	if got := w.ask("anna", `{"cluster":"c-m-a"}`); got.Code != http.StatusOK {
		t.Errorf("a short-lived token: %d %s", got.Code, got.Body)
	}
	if got := w.ask("bert", persistent); got.Code != http.StatusOK {
		t.Errorf("another user: %d %s", got.Code, got.Body)
	}
}

// Tokens that have expired are deleted, but for the last ones, which their user sees for a day.
func TestExpiredTokens(t *testing.T) {
	w := newWorld(t)
	create := func(name, who string, ago time.Duration) {
		t.Helper()
		token := held(name, who)
		token.Spec.ExpiresAt = metav1.NewTime(now.Add(-ago))
		if err := w.client.Create(t.Context(), token); err != nil {
			t.Fatal(err)
		}
	}
	for i := range MaxPerUser + 3 {
		create(fmt.Sprintf("anna-%02d", i), "anna", time.Duration(i+1)*time.Minute)
	}
	create("anna-live", "anna", -time.Hour)
	create("bert-yesterday", "bert", expiredFor-time.Minute)
	create("bert-before", "bert", expiredFor+time.Minute)
	create("carl-before", "carl", expiredFor+time.Minute)
	for _, who := range []string{"anna", "bert"} {
		if got := w.ask(who, `{"cluster":"c-m-a"}`); got.Code != http.StatusOK {
			t.Fatal(got.Body)
		}
	}
	gone := map[string]bool{"bert-before": true}
	for i := range 3 {
		gone[fmt.Sprintf("anna-%02d", MaxPerUser+i)] = true
	}
	var left managementv3.TokenList
	if err := w.client.List(t.Context(), &left); err != nil {
		t.Fatal(err)
	}
	if want := MaxPerUser + 3; len(left.Items) != want { // beside 50 of anna's: her live one, one of bert's, and that of carl
		t.Errorf("there are %d Tokens, want %d", len(left.Items), want)
	}
	for _, token := range left.Items {
		if gone[token.Name] {
			t.Errorf("Token %s still exists", token.Name)
		}
	}
}

// A credential of minutes must not become access for months.
func TestCredentialEnds(t *testing.T) {
	bearer := func(in time.Duration) string {
		claims := fmt.Sprintf(`{"sub":"anna","exp":%d}`, now.Add(in).Unix())
		return "Bearer e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".c2ln"
	}
	const month = `{"cluster":"c-m-a","ttlSeconds":2592000,"lasting":true}`
	for name, test := range map[string]struct {
		body, authorization string
		certificate         time.Duration
		upgrade             bool
		code                int
		message             string
	}{
		"a token of minutes": {body: month, authorization: bearer(10 * time.Minute), code: 400, message: "ask for 87000 at most"},
		"within a day of its end": {body: `{"cluster":"c-m-a","ttlSeconds":86400,"lasting":true}`, authorization: bearer(10 * time.Minute),
			code: 200},
		"a short-lived token":           {body: `{"cluster":"c-m-a"}`, authorization: bearer(time.Minute), code: 200},
		"a persistent token for longer": {body: month, authorization: bearer(60 * 24 * time.Hour), code: 200},
		"a token that does not end":     {body: month, authorization: "Bearer abc", code: 200},
		"a certificate of a year":       {body: month, certificate: 365 * 24 * time.Hour, code: 200},
		"a certificate of a day":        {body: month, certificate: 24 * time.Hour, code: 400, message: "ask for 172800 at most"},
		"a token in a WebSocket's way":  {body: month, upgrade: true, code: 400, message: "without Upgrade"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			request := httptest.NewRequest(http.MethodPost, Path, strings.NewReader(test.body))
			request.Header.Set("Content-Type", "application/json")
			request.Header.Set("Test-User", "anna")
			if test.authorization != "" {
				request.Header.Set("Authorization", test.authorization)
			}
			if test.upgrade {
				request.Header.Set("Upgrade", "websocket")
			}
			if test.certificate > 0 {
				request.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{{NotAfter: now.Add(test.certificate)}}}
			}
			recorder := httptest.NewRecorder()
			w.ServeHTTP(recorder, request)
			if recorder.Code != test.code || !strings.Contains(recorder.Body.String(), test.message) {
				t.Errorf("got %d %s, want %d %q", recorder.Code, recorder.Body, test.code, test.message)
			}
		})
	}
}
