package secretcache

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-dev/drover/hub/identity/tokens"
)

func TestBootstrapTokenIndex(t *testing.T) {
	account := []byte("ey.token")
	keys, err := indexTokenHash(&corev1.Secret{Data: map[string][]byte{"token": account}})
	must(t, err)
	bootstrap := tokens.AccountBootstrapToken(account)
	if len(keys) != 1 || keys[0] != tokens.BootstrapTokenHash(bootstrap) ||
		keys[0] != tokens.BootstrapTokenHash(strings.TrimRight(bootstrap, "=")) {
		t.Errorf("the token is not found by %q with and without padding: %v", bootstrap, keys)
	}
	if keys[0] == tokens.BootstrapTokenHash(string(account)) {
		t.Error("the ServiceAccount's own token is taken for a bootstrap token")
	}
	if keys, err := indexTokenHash(&corev1.Secret{}); err != nil || len(keys) != 0 {
		t.Errorf("a Secret without a token is indexed: %v, %v", keys, err)
	}
	if _, err := indexTokenHash("x"); err == nil {
		t.Error("a string was indexed")
	}
}

// TestOnlyUsed: the date of the last use of a token is no news about it, and everything else is.
func TestOnlyUsed(t *testing.T) {
	token := func(change func(*corev1.Secret)) *corev1.Secret {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "token", UID: "one", ResourceVersion: "1"}}
		secret.Annotations = map[string]string{corev1.ServiceAccountUIDKey: "account"}
		secret.Data = map[string][]byte{corev1.ServiceAccountTokenKey: []byte("token")}
		if change != nil {
			change(secret)
		}
		return secret
	}
	used := func(secret *corev1.Secret) {
		secret.ResourceVersion, secret.Labels = "2", map[string]string{LastUsedLabel: "2026-11-24"}
	}
	also := func(change func(*corev1.Secret)) func(*corev1.Secret) {
		return func(secret *corev1.Secret) { used(secret); change(secret) }
	}
	for name, tt := range map[string]struct {
		after func(*corev1.Secret)
		want  bool
	}{
		"used":         {used, true},
		"not used":     {func(secret *corev1.Secret) { secret.ResourceVersion = "2" }, false},
		"made invalid": {also(func(s *corev1.Secret) { s.Labels["kubernetes.io/legacy-token-invalid-since"] = "2026-11-24" }), false},
		"deleted":      {also(func(s *corev1.Secret) { s.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }), false},
		"recreated":    {also(func(s *corev1.Secret) { s.UID = "two" }), false},
		"replaced":     {also(func(s *corev1.Secret) { s.Data[corev1.ServiceAccountTokenKey] = []byte("other") }), false},
		"annotated":    {also(func(s *corev1.Secret) { s.Annotations[corev1.ServiceAccountUIDKey] = "other" }), false},
	} {
		if got := onlyUsed(token(nil), token(tt.after)); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
