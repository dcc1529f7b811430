package embedded

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiserverv1 "k8s.io/apiserver/pkg/apis/apiserver/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"
)

const (
	// EncryptionConfig is the name of the file with the keys that Secrets are encrypted with in etcd: an EncryptionConfiguration of
	// apiserver.config.k8s.io/v1 (https://kubernetes.io/docs/tasks/administer-cluster/encrypt-data).
	EncryptionConfig = "encryption-config.yaml"
	// encryptionState is the name of the file, beside etcd's data, that says with which key those Secrets are encrypted.
	encryptionState = "encryption-state.json"
	// keyBytes is what secretbox (XSalsa20 and Poly1305) takes.
	keyBytes = 32
	// rewritePage is how many Secrets are read at a time when all are written again.
	rewritePage = 200
	// maxLogged is how many of those that cannot be written are named.
	maxLogged = 10
	// progressInterval is how often that is logged.
	progressInterval = 2 * time.Second
)

// encryption is how Secrets are encrypted at rest.
type encryption struct {
	// configFile is the path of the EncryptionConfiguration, stateFile that of the encryptionState.
	configFile, stateFile string
	// key is the name of the key that Secrets are written with.
	key string
	// rewrite is set where Secrets may be in etcd that were written with another key, or with none.
	rewrite bool
}

// state is the content of the encryptionState file.
type state struct {
	// Key is the name of the key that Secrets are written with. It is a hash of the key and reveals nothing about it.
	Key string `json:"key"`
	// Previous are the names of the keys that some Secrets may still be encrypted with, until all are written with Key.
	Previous []string `json:"previous,omitempty"`
	// Rewritten is true once all Secrets have been written with Key.
	Rewritten bool `json:"rewritten"`
}

// ensureEncryption reads the keys in keyDir, and makes one where etcd has not been used with one yet. A key that is lost is an error, since
// a new one could read nothing.
func ensureEncryption(keyDir, etcdDir string) (*encryption, error) {
	if err := checkKeyDir(keyDir, etcdDir); err != nil {
		return nil, err
	}
	e := &encryption{configFile: filepath.Join(keyDir, EncryptionConfig), stateFile: filepath.Join(etcdDir, encryptionState)}
	before, err := readState(e.stateFile)
	if err != nil {
		return nil, err
	}
	keys, err := readKeys(e.configFile)
	switch {
	case errors.Is(err, fs.ErrNotExist) && before.Key != "":
		return nil, fmt.Errorf("%s is missing, and the Secrets in %s are encrypted with key %s of it; name the directory of the keys with "+
			"--encryption-key-dir, or restore the file from your backup of keys", e.configFile, etcdDir, before.Key)
	case errors.Is(err, fs.ErrNotExist):
		if keys, err = makeKey(keyDir, e.configFile); err != nil {
			return nil, err
		}
	case err != nil:
		return nil, err
	}
	for _, key := range before.keys() {
		if !slices.Contains(keys, key) {
			return nil, fmt.Errorf("%s does not have key %s, with which Secrets in %s are encrypted; restore the file from your backup of keys",
				e.configFile, key, etcdDir)
		}
	}
	e.key = keys[0]
	e.rewrite = before.Key != e.key || !before.Rewritten
	if before.Key == e.key {
		return e, nil
	}
	// From now on Secrets are written with the key, so it must not be lost, nor those before it until all Secrets are rewritten.
	previous := slices.DeleteFunc(before.keys(), func(key string) bool { return key == e.key })
	return e, e.writeState(state{Key: e.key, Previous: previous})
}

// checkKeyDir returns an error if keyDir, which may be relative to the working directory, is in etcdDir.
func checkKeyDir(keyDir, etcdDir string) error {
	keyDir, err := filepath.Abs(keyDir)
	if err != nil {
		return fmt.Errorf("resolving the directory of the encryption key: %w", err)
	}
	if rel, err := filepath.Rel(etcdDir, keyDir); err != nil || !filepath.IsLocal(rel) {
		return nil
	}
	return fmt.Errorf("the directory of the encryption key, %s, is in etcd's directory %s; choose another one, so that a copy of the "+
		"data does not hold the key", keyDir, etcdDir)
}

// keys returns the names of all keys that Secrets may be encrypted with.
func (s state) keys() []string {
	if s.Key == "" {
		return nil
	}
	return append([]string{s.Key}, s.Previous...)
}

// readState reads an encryptionState file; one that does not exist names no keys.
func readState(path string) (s state, err error) {
	raw, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(raw, &s)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return state{}, fmt.Errorf("reading %s: %w", path, err)
	}
	return s, nil
}

func (e *encryption) writeState(s state) error {
	raw, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("encoding the encryption state: %w", err)
	}
	return writeFile(e.stateFile, append(raw, '\n'), 0o600)
}

// readKeys returns the names of the keys in an EncryptionConfiguration, that for writing first. An error of fs.ErrNotExist is for a file
// that is missing.
func readKeys(path string) ([]string, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the encryption keys: %w", err)
	}
	return parseKeys(path, raw)
}

func parseKeys(path string, raw []byte) ([]string, error) {
	var config apiserverv1.EncryptionConfiguration
	if err := yaml.UnmarshalStrict(raw, &config); err != nil {
		return nil, fmt.Errorf("%s is not a valid EncryptionConfiguration: %w", path, err)
	}
	var keys []string
	for _, resource := range config.Resources {
		if !slices.Contains(resource.Resources, "secrets") {
			continue
		}
		for _, provider := range resource.Providers {
			if provider.Secretbox == nil {
				continue
			}
			for _, key := range provider.Secretbox.Keys {
				keys = append(keys, key.Name)
			}
		}
		if len(keys) > 0 && resource.Providers[0].Secretbox == nil {
			return nil, fmt.Errorf("%s: the first provider of secrets must be secretbox, which Secrets are written with", path)
		}
	}
	if len(keys) > 1 && slices.Contains(keys[1:], keys[0]) {
		return nil, fmt.Errorf("%s: two keys have the name %s; give the first one another name, by which the hub knows which Secrets are not "+
			"encrypted with it yet", path, keys[0])
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("%s: resources has no entry for secrets with the provider secretbox and a key", path)
	}
	return keys, nil
}

// makeKey writes an EncryptionConfiguration with a new key. What was written without encryption can still be read.
func makeKey(dir, path string) ([]string, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the directory of the encryption key: %w", err)
	}
	key := make([]byte, keyBytes)
	if _, err := rand.Read(key); err != nil {
		return nil, fmt.Errorf("making the encryption key: %w", err)
	}
	sum := sha256.Sum256(key)
	name := "key-" + hex.EncodeToString(sum[:4])
	config := apiserverv1.EncryptionConfiguration{
		TypeMeta: metav1.TypeMeta{APIVersion: apiserverv1.SchemeGroupVersion.String(), Kind: "EncryptionConfiguration"},
		Resources: []apiserverv1.ResourceConfiguration{{
			Resources: []string{"secrets"},
			Providers: []apiserverv1.ProviderConfiguration{
				{Secretbox: &apiserverv1.SecretboxConfiguration{Keys: []apiserverv1.Key{{Name: name, Secret: base64.StdEncoding.EncodeToString(key)}}}},
				{Identity: &apiserverv1.IdentityConfiguration{}},
			},
		}},
	}
	raw, err := yaml.Marshal(config)
	if err != nil {
		return nil, fmt.Errorf("encoding the encryption key: %w", err)
	}
	if err := writeFile(path, raw, 0o600); err != nil {
		return nil, fmt.Errorf("writing the encryption key: %w", err)
	}
	return []string{name}, nil
}

// rewriteSecrets writes every Secret again, where some may not have been written with the present key. The API server encrypts an unchanged
// object again where it was read with another key. One that somebody else changes meanwhile is written by that. With one that cannot be
// written, as in a full database, the hub starts all the same, and tries again at its next start; until then the earlier key is needed.
func (e *encryption) rewriteSecrets(ctx context.Context, config *rest.Config, log *slog.Logger) error {
	if !e.rewrite {
		return nil
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("making client: %w", err)
	}
	written, failed, begin := 0, 0, time.Now()
	options := metav1.ListOptions{Limit: rewritePage}
	for {
		list, err := client.CoreV1().Secrets(corev1.NamespaceAll).List(ctx, options)
		if next := sinceThen(err); next != "" {
			options.Continue = next
			continue
		}
		if err != nil {
			return fmt.Errorf("listing Secrets to encrypt: %w", err)
		}
		for i := range list.Items {
			secret := &list.Items[i]
			_, err := client.CoreV1().Secrets(secret.Namespace).Update(ctx, secret, metav1.UpdateOptions{})
			if err == nil || apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
				written++
				continue
			}
			if failed++; failed <= maxLogged {
				log.Error("Encrypting a Secret with the new key failed", "secret", secret.Namespace+"/"+secret.Name, "error", err)
			}
		}
		if time.Since(begin) > progressInterval {
			begin = time.Now()
			log.Info("Encrypting Secrets with a new key", "key", e.key, "done", written)
		}
		if options.Continue = list.Continue; options.Continue == "" {
			break
		}
	}
	if failed > 0 {
		log.Error("Not all Secrets are encrypted with the new key. Keep the earlier one: the hub tries again when it starts next", "key", e.key,
			"failed", failed, "secrets", written)
		return nil
	}
	if written > 0 {
		log.Info("Encrypted all Secrets", "key", e.key, "secrets", written)
	}
	return e.writeState(state{Key: e.key, Rewritten: true})
}

// sinceThen is where a list goes on with what is there now, if etcd does not have any more what was there when the list began; or empty.
func sinceThen(err error) string {
	var status apierrors.APIStatus
	if !apierrors.IsResourceExpired(err) || !errors.As(err, &status) {
		return ""
	}
	return status.Status().Continue
}
