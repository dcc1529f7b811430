package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/drover-dev/drover/e2e/distro/internal/bootstrap"
	"github.com/drover-dev/drover/e2e/distro/internal/config"
	"github.com/drover-dev/drover/e2e/distro/internal/pki"
	"github.com/drover-dev/drover/e2e/distro/internal/snapshot"
)

// resetFlag is there from a reset until the next start: it keeps two resets in a row from happening by mistake.
func (s *server) resetFlag() string { return s.data.Server("db", "reset-flag") }

func (s *server) clearResetFlag() error {
	if err := os.Remove(s.resetFlag()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// Reset makes etcd a cluster of this node alone, with the data of a snapshot or with what it has, and returns once etcd is stopped again.
func Reset(ctx context.Context, log *slog.Logger, c config.Config) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s := newServer(log, c)
	defer s.set.Stop()
	done := make(chan error, 1)
	go func() { done <- s.reset(ctx) }()
	select {
	case err := <-done:
		if err == nil {
			log.Info("Managed etcd cluster membership has been reset, restart without --cluster-reset flag now. " +
				"Before other etcd servers join again, move their " + s.data.Server("db") + " away")
		}
		return err
	case err := <-s.set.Failed():
		return err
	}
}

func (s *server) reset(ctx context.Context) error {
	if _, err := os.Stat(s.resetFlag()); err == nil {
		return fmt.Errorf("managed etcd cluster membership was already reset: start without --cluster-reset, or delete %s to reset again",
			s.resetFlag())
	}
	prepare := s.keepData
	if s.ClusterResetRestorePath != "" {
		prepare = s.restore
	}
	for _, phase := range []struct {
		name string
		run  func(context.Context) error
	}{
		{"finding this node's addresses", s.findAddresses},
		{"reading the tokens", s.readKnownToken},
		{"ending the static pods", s.endPods},
		{"preparing etcd's data", prepare},
		{"reading the cluster's data", s.readBootstrap},
		{"making certificates", s.makeCertificates},
		{"starting etcd", s.startAlone},
		{"comparing the cluster's data", s.settleBootstrap},
	} {
		if err := phase.run(ctx); err != nil {
			return fmt.Errorf("%s: %w", phase.name, err)
		}
	}
	s.set.Stop()
	return pki.WriteFile(s.resetFlag(), nil, 0o600)
}

// readKnownToken makes no token, unlike readTokens: nothing could be read with a new one.
func (s *server) readKnownToken(ctx context.Context) error {
	if _, err := os.Stat(s.data.Server("token")); err != nil && s.Token == "" {
		return errors.New("token: a node that has never been a server needs that of the cluster")
	}
	return s.readTokens(ctx)
}

func (s *server) keepData(context.Context) error {
	if _, err := os.Stat(s.data.Etcd("member")); err != nil {
		return fmt.Errorf("this node has no data of etcd to keep: %w", err)
	}
	if err := os.Remove(s.data.Etcd("tombstone")); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// restore puts data from a snapshot in the place of etcd's. What was there moves away once it is certain that the snapshot is whole and
// that the token fits.
func (s *server) restore(ctx context.Context) error {
	file := s.ClusterResetRestorePath
	switch {
	case s.S3 != nil:
		var err error
		if file, err = s.download(ctx); err != nil {
			return err
		}
	case !filepath.IsAbs(file):
		file = s.data.Server(file) // k3s runs in this folder
	}
	if folder := s.scheduled().folder.Path; strings.HasSuffix(file, snapshot.Compressed) {
		file = filepath.Join(folder, file) // as k3s has done since March 2026: https://github.com/k3s-io/k3s/issues/14526
	}
	fresh := s.data.Server("db", ".etcd-restore")
	if err := os.RemoveAll(fresh); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(fresh), 0o700); err != nil {
		return err
	}
	defer os.RemoveAll(fresh)
	name := s.newEtcdName()
	s.log.Info("Restoring a snapshot", "file", file)
	if err := snapshot.Restore(file, fresh, snapshot.Member{Name: name, PeerURL: s.peerURL()}); err != nil {
		return err
	}
	files, err := bootstrapIn(fresh, s.tokens.Load().server)
	if errors.Is(err, bootstrap.ErrToken) {
		return fmt.Errorf("%w: a snapshot is restored with the token of its cluster", err)
	}
	if err != nil {
		return err
	}
	if files == nil {
		return errors.New("the snapshot holds no cluster's data")
	}
	if err := pki.WriteFile(filepath.Join(fresh, "name"), []byte(name), 0o600); err != nil {
		return err
	}
	var old string
	if _, err := os.Stat(s.data.Etcd()); err == nil {
		if old, err = s.moveEtcdAway(); err != nil {
			return err
		}
	}
	if err := os.Rename(fresh, s.data.Etcd()); err != nil {
		if old != "" {
			err = errors.Join(err, os.Rename(old, s.data.Etcd()))
		}
		return err
	}
	return nil
}

// startAlone starts etcd as the only member of its cluster.
func (s *server) startAlone(ctx context.Context) error {
	name, err := s.etcdName()
	if err != nil {
		return err
	}
	plan := etcdPlan{name: name, initialCluster: name + "=" + s.peerURL(), state: "new", force: s.ClusterResetRestorePath == ""}
	if err := s.runEtcd(plan); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	if err := s.waitEtcd(ctx); err != nil {
		return err
	}
	info, err := s.etcdInfo(ctx)
	if err == nil && len(info.Members) != 1 {
		err = fmt.Errorf("etcd has %d members instead of one", len(info.Members))
	}
	return err
}
