package server

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"os"
	"time"

	apiserver "k8s.io/apiserver/pkg/apis/apiserver/v1"

	"github.com/drover-dev/drover/e2e/distro/internal/pki"
)

func (s *server) encryptionFile() string { return s.data.Cred("encryption-config.json") }

// ensureEncryption makes the key that Secrets are encrypted with in etcd, unless there is one.
func (s *server) ensureEncryption() error {
	if _, err := os.Stat(s.encryptionFile()); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // never fails
	keys := []apiserver.Key{{Name: s.SecretsEncryptionProvider + "key-" + time.Now().UTC().Format(time.RFC3339),
		Secret: base64.StdEncoding.EncodeToString(secret)}}
	provider := apiserver.ProviderConfiguration{AESCBC: &apiserver.AESConfiguration{Keys: keys}}
	if s.SecretsEncryptionProvider == "secretbox" {
		provider = apiserver.ProviderConfiguration{Secretbox: &apiserver.SecretboxConfiguration{Keys: keys}}
	}
	conf := apiserver.EncryptionConfiguration{Resources: []apiserver.ResourceConfiguration{{
		Resources: []string{"secrets"},
		Providers: []apiserver.ProviderConfiguration{provider, {Identity: &apiserver.IdentityConfiguration{}}},
	}}}
	conf.Kind, conf.APIVersion = "EncryptionConfiguration", apiserver.SchemeGroupVersion.String()
	raw, err := json.Marshal(conf)
	if err != nil {
		return err
	}
	return pki.WriteFile(s.encryptionFile(), raw, 0o600)
}
