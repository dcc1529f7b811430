// Package authendpoint holds hub and agent to what they have agreed on about tokens: what the hub makes is what the webhook beside a
// cluster's API servers knows, and whoever comes past the hub is known by the same names as who comes through it.
package authendpoint

import (
	"crypto/ed25519"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/drover-dev/drover/agent/authwebhook"
	"github.com/drover-dev/drover/hub/identity/tokens"
	"github.com/drover-dev/drover/hub/identity/userauth"
)

// newPair makes a hub's issuer, and the webhook of a cluster of that hub.
func newPair(t *testing.T) (*tokens.Issuer, *authwebhook.Verifier) {
	t.Helper()
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	issuer, err := tokens.New(key, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "keys.json")
	if err := os.WriteFile(file, issuer.PublicKeys(), 0o600); err != nil {
		t.Fatal(err)
	}
	return issuer, &authwebhook.Verifier{Cluster: "c-m-a", KeysFile: file}
}

func TestSameNames(t *testing.T) {
	issuer, webhook := newPair(t)
	for _, u := range []user.DefaultInfo{
		{Name: "anna", UID: "u", Groups: []string{"ops", "system:authenticated"}, Extra: map[string][]string{"team": {"blue"}}},
		{Name: "admin", Groups: []string{"system:masters", "kubeadm:cluster-admins"}},
		{Name: "drover:hub:system:serviceaccount:a:b", Groups: []string{"drover:controllers"}},
		{Name: "system:serviceaccount:a:b", Groups: []string{"system:serviceaccounts", "system:serviceaccounts:a"}},
	} {
		token, err := issuer.UserToken(tokens.User{Username: u.Name, UID: u.UID, Groups: u.Groups, Extra: u.Extra}, "c-m-a", time.Minute, "t",
			false)
		if err != nil {
			t.Fatal(err)
		}
		for _, administrators := range []bool{true, false} {
			webhook.Administrators = administrators
			past, err := webhook.Verify(token)
			if err != nil {
				t.Fatalf("%s: %v", u.Name, err)
			}
			through := userauth.Downstream(&u, administrators)
			// The API server adds this one.
			groups := slices.DeleteFunc(through.Groups, func(g string) bool { return g == user.AllAuthenticated })
			if past.Username != through.Name || past.UID != through.UID || !slices.Equal(past.Groups, groups) ||
				len(past.Extra) != len(through.Extra) {
				t.Errorf("past the hub it is %+v, through it %+v", past, through)
			}
		}
	}
}

func TestOtherTokens(t *testing.T) {
	issuer, webhook := newPair(t)
	anna := tokens.User{Username: "anna"}
	persistent, err := issuer.UserToken(anna, "c-m-a", time.Hour, "t", true)
	if err != nil {
		t.Fatal(err)
	}
	elsewhere, err := issuer.UserToken(anna, "c-m-b", time.Minute, "t", false)
	if err != nil {
		t.Fatal(err)
	}
	otherHub, _ := newPair(t)
	forged, err := otherHub.UserToken(anna, "c-m-a", time.Minute, "t", false)
	if err != nil {
		t.Fatal(err)
	}
	for token, want := range map[string]string{
		persistent: "is persistent", elsewhere: "another cluster", forged: "not signed by this cluster's hub",
		issuer.RegistrationToken("abcdefghij"): "not a user token",
	} {
		if _, err := webhook.Verify(token); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
