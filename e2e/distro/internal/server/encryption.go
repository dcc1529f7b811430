package server

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	apiserver "k8s.io/apiserver/pkg/apis/apiserver/v1"

	"github.com/drover-dev/drover/e2e/distro/internal/bootstrap"
	"github.com/drover-dev/drover/e2e/distro/internal/supervisor"
)

// The files about the encryption of Secrets, by their names among the shared files.
const (
	// encryptionName holds the keys, as the API server reads them.
	encryptionName = "cred/encryption-config.json"
	// encryptionStateName holds the stage of a change of keys and the hash of the file of keys, with a - between.
	encryptionStateName = "cred/encryption-state.json"
)

// The stages of a change of keys. Only stageActive is never on disk.
const (
	stageStart    = "start"
	stagePrepare  = "prepare"
	stageRotate   = "rotate"
	stageActive   = "reencrypt_active"
	stageFinished = "reencrypt_finished"
)

// aescbc and secretbox are the providers that k3s knows.
const (
	aescbc    = "aescbc"
	secretbox = "secretbox"
)

// encryptionKey is a key and what it is for.
type encryptionKey struct {
	provider string
	apiserver.Key
}

func newEncryptionKey(provider string, now time.Time) encryptionKey {
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // never fails
	return encryptionKey{provider, apiserver.Key{Name: provider + "key-" + now.UTC().Format(time.RFC3339),
		Secret: base64.StdEncoding.EncodeToString(secret)}}
}

// encryption is how Secrets are stored: with the first key if it is enabled, else in plain. All keys can read.
type encryption struct {
	enabled bool
	keys    []encryptionKey
}

// encode makes the API server's configuration.
func (e encryption) encode() ([]byte, error) {
	var providers []apiserver.ProviderConfiguration
	last := ""
	for _, k := range e.keys {
		if k.provider != last {
			providers = append(providers, apiserver.ProviderConfiguration{})
			last = k.provider
		}
		p := &providers[len(providers)-1]
		switch {
		case k.provider == secretbox && p.Secretbox == nil:
			p.Secretbox = &apiserver.SecretboxConfiguration{Keys: []apiserver.Key{k.Key}}
		case k.provider == secretbox:
			p.Secretbox.Keys = append(p.Secretbox.Keys, k.Key)
		case p.AESCBC == nil:
			p.AESCBC = &apiserver.AESConfiguration{Keys: []apiserver.Key{k.Key}}
		default:
			p.AESCBC.Keys = append(p.AESCBC.Keys, k.Key)
		}
	}
	plain := apiserver.ProviderConfiguration{Identity: &apiserver.IdentityConfiguration{}}
	if e.enabled {
		providers = append(providers, plain)
	} else {
		providers = append([]apiserver.ProviderConfiguration{plain}, providers...)
	}
	conf := apiserver.EncryptionConfiguration{
		Resources: []apiserver.ResourceConfiguration{{Resources: []string{"secrets"}, Providers: providers}}}
	conf.Kind, conf.APIVersion = "EncryptionConfiguration", apiserver.SchemeGroupVersion.String()
	return json.Marshal(conf)
}

// decodeEncryption reads what encode has made.
func decodeEncryption(raw []byte) (encryption, error) {
	var conf apiserver.EncryptionConfiguration
	if err := json.Unmarshal(raw, &conf); err != nil {
		return encryption{}, fmt.Errorf("reading %s: %w", encryptionName, err)
	}
	if len(conf.Resources) != 1 || len(conf.Resources[0].Providers) == 0 {
		return encryption{}, fmt.Errorf("reading %s: it is not that of this server", encryptionName)
	}
	providers := conf.Resources[0].Providers
	out := encryption{enabled: providers[0].Identity == nil}
	for _, p := range providers {
		switch {
		case p.AESCBC != nil:
			for _, k := range p.AESCBC.Keys {
				out.keys = append(out.keys, encryptionKey{aescbc, k})
			}
		case p.Secretbox != nil:
			for _, k := range p.Secretbox.Keys {
				out.keys = append(out.keys, encryptionKey{secretbox, k})
			}
		case p.Identity == nil:
			return out, fmt.Errorf("reading %s: it has a provider that is not k3s's", encryptionName)
		}
	}
	if len(out.keys) == 0 {
		return out, fmt.Errorf("reading %s: no key in it", encryptionName)
	}
	return out, nil
}

func (s *server) encryptionFile() string { return s.data.Server(filepath.FromSlash(encryptionName)) }

// errNeverEncrypted is why there is nothing to change.
var errNeverEncrypted = errors.New("this server has no encryption keys: start it with secrets-encryption first")

// readEncryption reads the keys of this server.
func (s *server) readEncryption() (encryption, error) {
	raw, err := os.ReadFile(s.encryptionFile())
	if errors.Is(err, os.ErrNotExist) {
		return encryption{}, errNeverEncrypted
	}
	if err != nil {
		return encryption{}, err
	}
	return decodeEncryption(raw)
}

// ensureEncryption makes the first key, unless the cluster has one.
func (s *server) ensureEncryption(ctx context.Context) error {
	files, err := s.updateBootstrap(ctx, func(files bootstrap.Files, _ bool) (bool, error) {
		if len(files[encryptionName]) > 0 && len(files[encryptionStateName]) > 0 {
			return false, nil
		}
		raw, err := files[encryptionName], error(nil)
		if len(raw) == 0 {
			raw, err = encryption{enabled: true, keys: []encryptionKey{newEncryptionKey(s.provider(), time.Now())}}.encode()
		}
		files[encryptionName], files[encryptionStateName] = raw, encryptionState(stageStart, raw)
		return true, err
	})
	if err != nil {
		return err
	}
	_, err = s.writeShared(files)
	return err
}

func encryptionState(stage string, conf []byte) []byte {
	return []byte(stage + "-" + supervisor.Hash(conf))
}

// provider is that of new keys.
func (s *server) provider() string {
	if s.SecretsEncryptionProvider == secretbox {
		return secretbox
	}
	return aescbc
}

// writeEncryption makes keys and a stage those of the cluster and of this server. The other servers take them when they start.
func (s *server) writeEncryption(ctx context.Context, e encryption, stage string) error {
	if err := s.storeEncryption(ctx, e, stage); err != nil {
		return err
	}
	return s.tellSavedEncryption(ctx)
}

// writeKeys does the same for keys alone: the stage stays, with the hash of the former keys.
func (s *server) writeKeys(ctx context.Context, e encryption) error {
	return s.storeEncryption(ctx, e, "")
}

func (s *server) storeEncryption(ctx context.Context, e encryption, stage string) error {
	raw, err := e.encode()
	if err != nil {
		return err
	}
	files, err := s.updateBootstrap(ctx, func(files bootstrap.Files, _ bool) (bool, error) {
		files[encryptionName] = raw
		if stage != "" {
			files[encryptionStateName] = encryptionState(stage, raw)
		}
		return true, nil
	})
	if err != nil {
		return err
	}
	_, err = s.writeShared(files)
	return err
}

// savedStage is the stage on the disk of this server, and the hash of its keys then.
func (s *server) savedStage() (stage, hash string, err error) {
	raw, err := os.ReadFile(s.data.Server(filepath.FromSlash(encryptionStateName)))
	if err != nil {
		return "", "", err
	}
	stage, hash, _ = strings.Cut(string(raw), "-")
	return stage, hash, nil
}
