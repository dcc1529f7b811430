package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/drover-dev/drover/e2e/distro/internal/bootstrap"
	"github.com/drover-dev/drover/e2e/distro/internal/pki"
	"github.com/drover-dev/drover/e2e/distro/internal/supervisor"
)

// shared are the files below server/ that all servers of a cluster have alike.
var shared = []string{
	"tls/server-ca.crt", "tls/server-ca.key", "tls/client-ca.crt", "tls/client-ca.key",
	"tls/request-header-ca.crt", "tls/request-header-ca.key", "tls/etcd/server-ca.crt", "tls/etcd/server-ca.key",
	"tls/etcd/peer-ca.crt", "tls/etcd/peer-ca.key", "tls/service.key", "tls/service.current.key", encryptionName, encryptionStateName,
}

// mayDiffer are those of the shared files that change during a cluster's life; a joining server takes the cluster's.
var mayDiffer = []string{"tls/service.key", "tls/service.current.key", encryptionName, encryptionStateName}

// join fetches the authorities, on all servers but the first.
func (s *server) join(ctx context.Context) error {
	if s.Server == "" {
		return nil
	}
	known, _ := os.ReadFile(s.data.TLS("server-ca.crt"))
	bundle, err := s.fetch(ctx, known)
	if err != nil {
		return err
	}
	for name, raw := range bundle {
		if !slices.Contains(shared, name) {
			continue
		}
		file := s.data.Server(filepath.FromSlash(name))
		have, err := os.ReadFile(file)
		// A server that has been one of the cluster takes authorities that were rotated while it was down.
		if err == nil && !bytes.Equal(have, raw) && !slices.Contains(mayDiffer, name) && !s.hasServed() {
			return fmt.Errorf("%s is not that of the cluster at %s", file, s.Server)
		}
		if err := pki.WriteFile(file, raw, fileMode(name)); err != nil {
			return err
		}
	}
	return s.takePasswords(bootstrap.Files(bundle))
}

// fetch asks the server to join at until it answers. A member of the cluster that comes back goes on without an answer:
// the server that it once joined at may be gone for good.
func (s *server) fetch(ctx context.Context, known []byte) (supervisor.Bundle, error) {
	patience := time.Hour
	if _, err := os.Stat(s.data.Etcd("member")); err == nil || s.DisableEtcd && s.hasServed() {
		patience = 10 * time.Second
	}
	deadline := time.Now().Add(patience)
	for {
		c, err := supervisor.Dial(ctx, s.Server, s.Token, known)
		if err == nil {
			var b supervisor.Bundle
			if b, err = c.Bootstrap(ctx); err == nil {
				s.upstream = c
				return b, nil
			}
		}
		if errors.Is(err, supervisor.ErrRefused) {
			return nil, err
		}
		if time.Now().After(deadline) && patience < time.Hour {
			s.log.Warn("Going on without the server this one joined at", "server", s.Server, "error", err)
			return nil, nil
		}
		s.log.Info("Waiting for the server to join at", "server", s.Server, "error", err)
		if err := sleep(ctx, 2*time.Second); err != nil {
			return nil, err
		}
	}
}

// hasServed reports whether this server has been up before.
func (s *server) hasServed() bool {
	_, err := os.Stat(s.data.Cred("admin.kubeconfig"))
	return err == nil
}

// tokens are the secrets of the two tokens.
type tokens struct{ server, agent string }

// readTokens takes the tokens from the configuration, or those of an earlier start, or makes them.
func (s *server) readTokens(context.Context) error {
	var read tokens
	for _, t := range []struct {
		given, file string
		into        *string
	}{{s.Token, "token", &read.server}, {s.AgentToken, "agent-token", &read.agent}} {
		text := t.given
		if text == "" {
			raw, _ := os.ReadFile(s.data.Server(t.file))
			text = strings.TrimSpace(string(raw))
		}
		if text == "" && t.file == "agent-token" {
			read.agent = read.server
			continue
		}
		if text == "" {
			text = supervisor.NewSecret()
		}
		_, secret, err := supervisor.ParseToken(text)
		if err != nil {
			return fmt.Errorf("%s: %w", t.file, err)
		}
		*t.into = secret
	}
	s.tokens.Store(&read)
	return nil
}

// writeTokens writes the tokens for those who want to join nodes by hand.
func (s *server) writeTokens() error {
	now := s.tokens.Load()
	token := supervisor.FormatToken(s.auth.server.PEM, "server", now.server) + "\n"
	agent := supervisor.FormatToken(s.auth.server.PEM, "node", now.agent) + "\n"
	if err := pki.WriteFile(s.data.Server("token"), []byte(token), 0o600); err != nil {
		return err
	}
	if err := pki.WriteFile(s.data.Server("agent-token"), []byte(agent), 0o600); err != nil {
		return err
	}
	link := s.data.Server("node-token")
	_ = os.Remove(link)
	return os.Symlink(s.data.Server("token"), link)
}

func fileMode(name string) os.FileMode {
	if strings.HasSuffix(name, ".crt") {
		return 0o644
	}
	return 0o600
}
