package gateway

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// tokenReader knows ClusterRegistrationTokens by name; true is one that is being deleted.
type tokenReader map[client.ObjectKey]bool

func (r tokenReader) Get(_ context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	deleted, found := r[key]
	if !found {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "clusterregistrationtokens"}, key.Name)
	}
	obj.SetNamespace(key.Namespace)
	obj.SetName(key.Name)
	if deleted {
		obj.SetDeletionTimestamp(&metav1.Time{Time: time.Unix(1, 0)})
	}
	return nil
}

func (tokenReader) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return errors.New("not used")
}

func TestFindRegistrationToken(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	at := func(d time.Duration) string { return now.Add(d).Format(time.RFC3339) }
	secrets := cache.NewStore(cache.MetaNamespaceKeyFunc)
	for name, data := range map[string]map[string]string{
		"crt-token-forever": {"token": "forever"},
		"crt-token-rotated": {"token": "new", "expiresAt": at(time.Hour), "previousToken": "old", "gracePeriodExpiresAt": at(time.Minute)},
		"crt-token-stale":   {"token": "stale", "expiresAt": at(-time.Second), "previousToken": "staler", "gracePeriodExpiresAt": at(-time.Hour)},
		"crt-token-noend":   {"token": "x1", "previousToken": "noend"},
		"crt-token-garbled": {"token": "garbled", "expiresAt": "soon"},
		"crt-token-empty":   {"token": "", "previousToken": ""},
		"crt-token-deleted": {"token": "deleted"},
		"crt-token-orphan":  {"token": "orphan"},
		"other":             {"token": "other"},
	} {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "c-m-1", Name: name}, Data: map[string][]byte{}}
		for key, value := range data {
			secret.Data[key] = []byte(value)
		}
		must(t, secrets.Add(secret))
	}
	reader := tokenReader{}
	for _, name := range []string{"forever", "rotated", "stale", "noend", "garbled", "empty"} {
		reader[client.ObjectKey{Namespace: "c-m-1", Name: name}] = false
	}
	reader[client.ObjectKey{Namespace: "c-m-1", Name: "deleted"}] = true
	tokens := &registrationTokens{secrets: secrets, tokens: reader, now: func() time.Time { return now }, log: logr.Discard()}

	for _, tt := range []struct{ token, want, err string }{
		{token: "forever", want: "forever"},
		{token: "new", want: "rotated"},
		{token: "old", want: "rotated"},
		{token: "stale", err: "expired at 2026-01-02T03:04:04Z"},
		{token: "staler", err: "expired at 2026-01-02T02:04:05Z"},
		{token: "noend", err: "no longer valid"},
		{token: "garbled", err: "no longer valid"},
		{token: "", err: "unknown"},
		{token: "deleted", err: "unknown"},
		{token: "orphan", err: "unknown"},
		{token: "other", err: "unknown"},
		{token: "wrong", err: "unknown"},
		{token: "forever ", err: "unknown"},
	} {
		found, err := tokens.find(t.Context(), tt.token)
		var refused *refusal
		switch {
		case tt.err == "" && (err != nil || found.Name != tt.want):
			t.Errorf("%q: %v, %v", tt.token, found, err)
		case tt.err != "" && (!errors.As(err, &refused) || refused.code != http.StatusUnauthorized || !strings.Contains(err.Error(), tt.err)):
			t.Errorf("%q: %v, want 401 with %q", tt.token, err, tt.err)
		}
	}
}

var _ client.Reader = tokenReader{}

func TestBootstrapTokenIndex(t *testing.T) {
	account := []byte("ey.token")
	keys, err := indexTokenHash(&corev1.Secret{Data: map[string][]byte{"token": account}})
	must(t, err)
	bootstrap := bootstrapToken(account)
	if len(keys) != 1 || keys[0] != bootstrapTokenIndex(bootstrap) || keys[0] != bootstrapTokenIndex(strings.TrimRight(bootstrap, "=")) {
		t.Errorf("the token is not found by %q with and without padding: %v", bootstrap, keys)
	}
	if keys[0] == bootstrapTokenIndex(string(account)) {
		t.Error("the ServiceAccount's own token is taken for a bootstrap token")
	}
	if keys, err := indexTokenHash(&corev1.Secret{}); err != nil || len(keys) != 0 {
		t.Errorf("a Secret without a token is indexed: %v, %v", keys, err)
	}
	if _, err := indexTokenHash("x"); err == nil {
		t.Error("a string was indexed")
	}
}
