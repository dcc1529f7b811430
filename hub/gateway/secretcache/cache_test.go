package secretcache

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

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
