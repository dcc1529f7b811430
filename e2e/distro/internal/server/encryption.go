package server

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"time"

	apiserver "k8s.io/apiserver/pkg/apis/apiserver/v1"

	"github.com/drover-dev/drover/e2e/distro/internal/bootstrap"
)

// encryptionName is the file with the keys that Secrets are encrypted with in etcd, by its name among the shared files.
const encryptionName = "cred/encryption-config.json"

func (s *server) encryptionFile() string { return s.data.Server(filepath.FromSlash(encryptionName)) }

// ensureEncryption makes the key that Secrets are encrypted with in etcd, unless the cluster has one.
func (s *server) ensureEncryption(ctx context.Context) error {
	files, err := s.updateBootstrap(ctx, func(files bootstrap.Files, _ bool) (bool, error) {
		if len(files[encryptionName]) > 0 {
			return false, nil
		}
		raw, err := os.ReadFile(s.encryptionFile())
		if errors.Is(err, os.ErrNotExist) {
			raw, err = firstEncryption(s.SecretsEncryptionProvider, time.Now())
		}
		files[encryptionName] = raw
		return true, err
	})
	if err != nil {
		return err
	}
	_, err = s.writeShared(files)
	return err
}

// firstEncryption is a configuration with one new key.
func firstEncryption(provider string, now time.Time) ([]byte, error) {
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // never fails
	keys := []apiserver.Key{{Name: provider + "key-" + now.UTC().Format(time.RFC3339), Secret: base64.StdEncoding.EncodeToString(secret)}}
	encrypting := apiserver.ProviderConfiguration{AESCBC: &apiserver.AESConfiguration{Keys: keys}}
	if provider == "secretbox" {
		encrypting = apiserver.ProviderConfiguration{Secretbox: &apiserver.SecretboxConfiguration{Keys: keys}}
	}
	conf := apiserver.EncryptionConfiguration{Resources: []apiserver.ResourceConfiguration{{
		Resources: []string{"secrets"},
		Providers: []apiserver.ProviderConfiguration{encrypting, {Identity: &apiserver.IdentityConfiguration{}}},
	}}}
	conf.Kind, conf.APIVersion = "EncryptionConfiguration", apiserver.SchemeGroupVersion.String()
	return json.Marshal(conf)
}
