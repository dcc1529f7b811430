package server

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/drover-dev/drover/e2e/distro/internal/bootstrap"
	"github.com/drover-dev/drover/e2e/distro/internal/pki"
	"github.com/drover-dev/drover/e2e/distro/internal/supervisor"
)

// answerToken gives the cluster a new token.
func (s *server) answerToken(w http.ResponseWriter, r *http.Request) {
	var req supervisor.TokenRequest
	err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<16)).Decode(&req)
	if err != nil || req.NewToken == nil {
		http.Error(w, "no new token was given", http.StatusBadRequest)
		return
	}
	if err := s.rotateToken(r.Context(), *req.NewToken); err != nil {
		s.log.Warn("Cannot rotate the token", "error", err)
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

// rotateToken encrypts the cluster's data with another token, which then opens this server. The others go on with the former one until
// they are started with the new one.
func (s *server) rotateToken(ctx context.Context, text string) error {
	if text == "" {
		text = supervisor.NewSecret()
	}
	_, secret, err := supervisor.ParseToken(text)
	if err != nil {
		return err
	}
	if !s.encryptionMu.TryLock() { // whoever changes keys writes with the token
		return errEncryptionBusy
	}
	defer s.encryptionMu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	before := s.tokens.Load()
	if secret == before.server {
		return errors.New("this is the token already")
	}
	files, revision, err := s.askBootstrap(ctx)
	if err != nil {
		return err
	}
	if files == nil {
		return errors.New("the cluster's data is not in etcd yet")
	}
	content, err := s.rotatedPasswords(secret)
	if err != nil {
		return err
	}
	at := time.Now().UTC().Truncate(time.Second)
	files[passwordsName], files[passwordsTime] = content, []byte(at.Format(time.RFC3339))
	raw, err := bootstrap.Encode(files, secret)
	if err != nil {
		return err
	}
	c, err := s.localEtcd()
	if err != nil {
		return err
	}
	old := bootstrap.Key(before.server)
	done, err := c.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(old), "=", revision)).
		Then(clientv3.OpPut(bootstrap.Key(secret), string(raw)), clientv3.OpDelete(old)).Commit()
	if err == nil && !done.Succeeded {
		err = errors.New("the cluster's data has just been changed by another server, try again")
	}
	if err != nil {
		return fmt.Errorf("writing the cluster's data: %w", err)
	}
	now := tokens{server: secret, agent: before.agent}
	if before.agent == before.server && s.AgentToken == "" {
		now.agent = secret
	}
	s.tokens.Store(&now)
	s.front.SetTokens(now.server, now.agent)
	s.log.Info("The token is another one from now on")
	if err := pki.WriteFile(s.passwordsFile(), content, 0o600); err != nil {
		return err
	}
	return errors.Join(os.Chtimes(s.passwordsFile(), at, at), s.writeTokens())
}

// rotated are the shared files that rotate-ca replaces, authorities without their endings.
var rotated = []string{"tls/server-ca", "tls/client-ca", "tls/request-header-ca", "tls/etcd/server-ca", "tls/etcd/peer-ca"}

const (
	serviceKeyName        = "tls/service.key"
	currentServiceKeyName = "tls/service.current.key"
)

// answerAuthorities writes new authorities to the cluster's data. Servers take them when they start.
func (s *server) answerAuthorities(w http.ResponseWriter, r *http.Request) {
	var given supervisor.Bundle
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 4<<20)).Decode(&given); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	force := r.URL.Query().Get("force") == "true"
	_, err := s.updateBootstrap(r.Context(), func(files bootstrap.Files, _ bool) (bool, error) {
		err := replaceAuthorities(files, given)
		if err != nil && force {
			s.log.Warn("New authorities have faults, and are taken nevertheless", "faults", err)
			err = nil
		}
		if err == nil {
			err = s.addPasswords(files)
		}
		return true, err
	})
	if err != nil {
		s.log.Warn("Cannot rotate authorities", "error", err)
		http.Error(w, "failed to validate new CA certificates and keys: "+err.Error(), http.StatusInternalServerError)
		return
	}
	s.log.Info("The cluster has other authorities: all servers must be restarted")
	w.WriteHeader(http.StatusNoContent)
}

// replaceAuthorities puts those that were given in the place of those of the cluster, and returns what is wrong with them.
func replaceAuthorities(files, given map[string][]byte) error {
	var faults []error
	for _, name := range rotated {
		cert, key := given[name+".crt"], given[name+".key"]
		if len(cert) == 0 && len(key) == 0 {
			continue
		}
		if err := pki.CheckSuccessor(files[name+".crt"], cert, key); err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", name, err))
		}
		files[name+".crt"], files[name+".key"] = cert, key
	}
	if keys := given[serviceKeyName]; len(keys) > 0 {
		block, _ := pem.Decode(keys)
		if block == nil {
			return errors.Join(append(faults, fmt.Errorf("%s: no key in it", serviceKeyName))...)
		}
		// Tokens that were signed before must stay good.
		if old, _ := pem.Decode(files[currentServiceKeyName]); old != nil && !holdsKey(keys, old.Bytes) {
			faults = append(faults, fmt.Errorf("%s: the key that signs today is not among the new ones", serviceKeyName))
		}
		files[serviceKeyName], files[currentServiceKeyName] = keys, pem.EncodeToMemory(block)
	}
	return errors.Join(faults...)
}

func holdsKey(raw, der []byte) bool {
	for block, rest := pem.Decode(raw); block != nil; block, rest = pem.Decode(rest) {
		if strings.HasSuffix(block.Type, "PRIVATE KEY") && bytes.Equal(block.Bytes, der) {
			return true
		}
	}
	return false
}
