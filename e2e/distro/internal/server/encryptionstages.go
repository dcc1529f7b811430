package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/pager"

	"github.com/drover-dev/drover/e2e/distro/internal/supervisor"
)

const (
	// encryptionTimeout is how long a change of keys may last, the writing of all Secrets included.
	encryptionTimeout = 15 * time.Minute
	// reloadTimeout is how long the API server may take to read new keys.
	reloadTimeout = 90 * time.Second
	// secretsPage is how many Secrets are asked for at a time.
	secretsPage = 20
)

var (
	errNoAPI          = errors.New("no API server runs here, or it is not up yet: ask a control plane")
	errEncryptionBusy = errors.New("another change of the encryption keys is running")
	errRotateKeysOnly = errors.New("this stage does not support the secretbox provider, use rotate-keys instead")
)

// answerEncryptionStatus says where the encryption of Secrets stands.
func (s *server) answerEncryptionStatus(w http.ResponseWriter, r *http.Request) {
	if !s.apiAnswered.Load() {
		http.Error(w, errNoAPI.Error(), http.StatusServiceUnavailable)
		return
	}
	state, err := s.encryptionStatus(r.Context())
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(state)
}

// answerEncryption changes the keys. A change that has begun goes on when whoever asked for it has gone.
func (s *server) answerEncryption(w http.ResponseWriter, r *http.Request) {
	if !s.apiAnswered.Load() {
		http.Error(w, errNoAPI.Error(), http.StatusServiceUnavailable)
		return
	}
	var req supervisor.EncryptionRequest
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<16)).Decode(&req); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if err := s.changeEncryption(context.WithoutCancel(r.Context()), req); err != nil {
		s.log.Warn("Cannot change the encryption keys", "error", err)
		http.Error(w, err.Error(), http.StatusBadRequest)
	}
}

func (s *server) changeEncryption(ctx context.Context, req supervisor.EncryptionRequest) error {
	if !s.encryptionMu.TryLock() {
		return errEncryptionBusy
	}
	ctx, cancel := context.WithTimeout(ctx, encryptionTimeout)
	done := func() { cancel(); s.encryptionMu.Unlock() }
	e, err := s.readEncryption()
	if err != nil {
		done()
		return err
	}
	if req.Stage != nil && *req.Stage == supervisor.StageReencrypt {
		if err := s.beginReencryption(ctx, req.Force, stageRotate); err != nil {
			done()
			return err
		}
		go func() { // k3s does not let anybody wait for it
			defer done()
			if err := s.reencrypt(ctx, req.Skip); err != nil {
				s.log.Error("Cannot encrypt all Secrets with the new key", "error", err)
			}
		}()
		return nil
	}
	defer done()
	switch {
	case req.Enable != nil:
		return s.switchEncryption(ctx, e, *req.Enable)
	case req.Stage == nil:
		return errors.New("neither a stage nor a switch was asked for")
	case *req.Stage == supervisor.StagePrepare:
		return s.prepareKey(ctx, e, req.Force)
	case *req.Stage == supervisor.StageRotate:
		return s.rotateKey(ctx, e, req.Force)
	case *req.Stage == supervisor.StageRotateKeys:
		return s.rotateKeys(ctx, e)
	}
	return fmt.Errorf("unknown stage %s requested", *req.Stage)
}

// prepareKey adds a key that all servers can read with, and none writes with yet.
func (s *server) prepareKey(ctx context.Context, e encryption, force bool) error {
	if err := s.checkStage(ctx, stageStart, stageFinished); err != nil && !force {
		return err
	}
	if s.SecretsEncryptionProvider == secretbox {
		return errRotateKeysOnly
	}
	e.enabled, e.keys = true, append(e.keys, newEncryptionKey(aescbc, time.Now()))
	return s.writeEncryption(ctx, e, stagePrepare)
}

// rotateKey lets the newest key be the one to write with.
func (s *server) rotateKey(ctx context.Context, e encryption, force bool) error {
	if err := s.checkStage(ctx, stagePrepare); err != nil && !force {
		return err
	}
	if s.SecretsEncryptionProvider == secretbox {
		return errRotateKeysOnly
	}
	last := len(e.keys) - 1
	e.enabled, e.keys = true, append([]encryptionKey{e.keys[last]}, e.keys[:last]...)
	return s.writeEncryption(ctx, e, stageRotate)
}

// rotateKeys does everything at once: a new key, all Secrets, and the end of the old key.
func (s *server) rotateKeys(ctx context.Context, e encryption) error {
	if err := s.beginReencryption(ctx, false, stageStart, stageFinished); err != nil {
		return err
	}
	e.enabled = true
	e.keys = append([]encryptionKey{newEncryptionKey(s.provider(), time.Now())}, e.keys...)
	err := s.writeKeys(ctx, e)
	if err == nil {
		err = s.awaitReload(ctx)
	}
	if err == nil {
		err = s.reencrypt(ctx, false)
	}
	return err
}

// switchEncryption lets new Secrets be written in plain, or with the first key again.
func (s *server) switchEncryption(ctx context.Context, e encryption, enable bool) error {
	if e.enabled == enable {
		return nil
	}
	e.enabled = enable
	return s.writeKeys(ctx, e)
}

// beginReencryption says that Secrets are being written with a new key. Nothing of that is on disk.
func (s *server) beginReencryption(ctx context.Context, force bool, want ...string) error {
	if err := s.checkStage(ctx, want...); err != nil && !force {
		return err
	}
	_, hash, err := s.savedStage()
	if err != nil {
		return err
	}
	return s.tellEncryption(ctx, stageActive+"-"+hash)
}

// reencrypt writes all Secrets, and removes the oldest key unless that shall stay.
func (s *server) reencrypt(ctx context.Context, skip bool) error {
	n, err := s.rewriteSecrets(ctx)
	if err != nil {
		return errors.Join(err, s.tellSavedEncryption(ctx))
	}
	s.log.Info("Wrote all Secrets again", "secrets", n)
	if skip {
		return s.tellSavedEncryption(ctx)
	}
	e, err := s.readEncryption()
	if err != nil {
		return err
	}
	if len(e.keys) < 2 {
		return fmt.Errorf("the only key %s stays", e.keys[0].Name)
	}
	e.keys = e.keys[:len(e.keys)-1]
	return s.writeEncryption(ctx, e, stageFinished)
}

// rewriteSecrets makes the API server encrypt each Secret with the first key.
func (s *server) rewriteSecrets(ctx context.Context) (n int, err error) {
	secrets := s.admin.CoreV1()
	pages := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return secrets.Secrets("").List(ctx, o)
	})
	pages.PageSize = secretsPage
	err = pages.EachListItem(ctx, metav1.ListOptions{}, func(o runtime.Object) error {
		secret, ok := o.(*corev1.Secret)
		if !ok {
			return fmt.Errorf("%T is no Secret", o)
		}
		_, err := secrets.Secrets(secret.Namespace).Update(ctx, secret, metav1.UpdateOptions{})
		if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) { // somebody else has just written or deleted it
			return fmt.Errorf("writing Secret %s/%s: %w", secret.Namespace, secret.Name, err)
		}
		n++
		return nil
	})
	return n, err
}

// awaitReload waits until the API server has read the keys that are on disk.
func (s *server) awaitReload(ctx context.Context) error {
	raw, err := os.ReadFile(s.encryptionFile())
	if err != nil {
		return err
	}
	want := supervisor.Hash(raw)
	for deadline := time.Now().Add(reloadTimeout); ; {
		metrics, err := s.admin.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
		if err == nil && loaded(string(metrics), want) {
			return nil
		}
		if time.Now().After(deadline) {
			return errors.Join(errors.New("the API server has not read the new keys"), err)
		}
		if err := sleep(ctx, time.Second); err != nil {
			return err
		}
	}
}

// loaded reports whether the API server's metrics say that it uses the keys with a hash.
func loaded(metrics, hash string) bool {
	return slices.ContainsFunc(strings.Split(metrics, "\n"), func(line string) bool {
		return strings.HasPrefix(line, "apiserver_encryption_config_controller_last_config_info{") && strings.Contains(line, hash)
	})
}
