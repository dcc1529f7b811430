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

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/drover-dev/drover/e2e/distro/internal/bootstrap"
	"github.com/drover-dev/drover/e2e/distro/internal/pki"
	"github.com/drover-dev/drover/e2e/distro/internal/snapshot"
	"github.com/drover-dev/drover/e2e/distro/internal/supervisor"
)

// readBootstrap takes over the shared files from the etcd of this server, which does not run yet unless it is a static pod. What is on disk
// may be older, or have been deleted before a restore.
func (s *server) readBootstrap(ctx context.Context) error {
	if _, err := os.Stat(s.data.Etcd("tombstone")); s.DisableEtcd || err == nil && s.Server != "" {
		return nil // this member was removed, and the cluster may have other files by now
	}
	files, running, err := s.askRunningEtcd(ctx)
	if !running {
		files, err = bootstrapIn(s.data.Etcd(), s.tokens.Load().server)
	}
	if err != nil || files == nil {
		return err
	}
	changed, err := s.writeShared(files)
	if len(changed) > 0 {
		s.log.Info("Took files from the cluster's data", "files", changed)
	}
	if err == nil && s.Server == "" { // the others compare with the server they have joined at
		err = s.takePasswords(files)
	}
	return err
}

// bootstrapIn returns the shared files in a data folder of etcd, or nothing if they were never written there.
func bootstrapIn(dataDir, token string) (bootstrap.Files, error) {
	keys, err := snapshot.Read(dataDir, bootstrap.Prefix)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return bootstrap.Find(keys, token)
}

// writeShared writes those of the files that differ from what is on disk, and returns their names.
func (s *server) writeShared(files bootstrap.Files) ([]string, error) {
	var changed []string
	for _, name := range shared {
		raw, ok := files[name]
		if !ok {
			continue
		}
		file := s.data.Server(filepath.FromSlash(name))
		if have, err := os.ReadFile(file); err == nil && bytes.Equal(have, raw) {
			continue
		}
		if err := pki.WriteFile(file, raw, fileMode(name)); err != nil {
			return changed, err
		}
		changed = append(changed, name)
	}
	return changed, nil
}

// readShared reads the shared files from disk.
func (s *server) readShared() (bootstrap.Files, error) {
	out := bootstrap.Files{}
	for _, name := range shared {
		raw, err := os.ReadFile(s.data.Server(filepath.FromSlash(name)))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		out[name] = raw
	}
	return out, s.addPasswords(out)
}

// errDatastore is in the error when etcd did not answer, which may be different a moment later: a member that joins or leaves costs the
// cluster its leader for some seconds.
var errDatastore = errors.New("the cluster's data cannot be reached")

// askBootstrap asks etcd for the shared files, and for the revision at which they were last written; nothing and 0 if they never were.
func (s *server) askBootstrap(ctx context.Context) (bootstrap.Files, int64, error) {
	c, err := s.localEtcd()
	if err != nil {
		return nil, 0, err
	}
	got, err := c.Get(ctx, bootstrap.Prefix, clientv3.WithPrefix())
	if err != nil {
		return nil, 0, fmt.Errorf("%w: %w", errDatastore, err)
	}
	keys, revision := map[string][]byte{}, int64(0)
	for _, kv := range got.Kvs {
		keys[string(kv.Key)] = kv.Value
		if string(kv.Key) == bootstrap.Key(s.tokens.Load().server) {
			revision = kv.ModRevision
		}
	}
	files, err := bootstrap.Find(keys, s.tokens.Load().server)
	return files, revision, err
}

// changeFiles changes the shared files; fresh says that none are in etcd yet. It returns false if nothing is to be written.
type changeFiles func(files bootstrap.Files, fresh bool) (bool, error)

// updateBootstrap changes the shared files in etcd, for which it begins with those of this server if there are none. change is called
// again if another server was faster, or if etcd did not answer at once.
func (s *server) updateBootstrap(ctx context.Context, change changeFiles) (bootstrap.Files, error) {
	ctx, cancel := context.WithTimeout(ctx, datastoreTimeout)
	defer cancel()
	for {
		files, done, err := s.tryUpdate(ctx, change)
		if done || err != nil && !errors.Is(err, errDatastore) {
			return files, err
		}
		if err != nil {
			s.log.Info("Waiting for the cluster's data", "error", err)
			if sleep(ctx, 500*time.Millisecond) != nil {
				return nil, err
			}
		}
	}
}

// datastoreTimeout is how long a change of the shared files waits for etcd.
const datastoreTimeout = 30 * time.Second

// tryUpdate tries once to change the shared files; it is not done if another server was faster.
func (s *server) tryUpdate(ctx context.Context, change changeFiles) (files bootstrap.Files, done bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, datastoreTimeout/3)
	defer cancel()
	files, revision, err := s.askBootstrap(ctx)
	if err == nil && files == nil {
		files, err = s.readShared()
	}
	if err != nil {
		return nil, false, err
	}
	if write, err := change(files, revision == 0); err != nil || !write {
		return files, true, err
	}
	token := s.tokens.Load().server
	raw, err := bootstrap.Encode(files, token)
	if err != nil {
		return nil, false, err
	}
	c, err := s.localEtcd()
	if err != nil {
		return nil, false, err
	}
	key := bootstrap.Key(token)
	put, err := c.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", revision)).Then(clientv3.OpPut(key, string(raw))).Commit()
	if err != nil {
		return nil, false, fmt.Errorf("%w: %w", errDatastore, err)
	}
	return files, put.Succeeded, nil
}

// settleBootstrap compares the shared files with those in etcd, which now runs, and writes them there if they are not there yet.
func (s *server) settleBootstrap(ctx context.Context) error {
	wrote := false
	files, err := s.updateBootstrap(ctx, func(_ bootstrap.Files, fresh bool) (bool, error) {
		wrote = fresh
		return fresh, nil
	})
	if err != nil || wrote {
		return err
	}
	changed, err := s.writeShared(files)
	changed = slices.DeleteFunc(changed, func(name string) bool { return slices.Contains(mayDiffer, name) }) // not in use yet
	if err == nil && len(changed) > 0 {
		err = fmt.Errorf("the cluster has changed these files while this server was down, which starts again with them: %s",
			strings.Join(changed, ", "))
	}
	return err
}

// bootstrap is what a server that joins at this one gets: what is in etcd, or on this server as long as etcd does not answer.
func (s *server) bootstrap() (supervisor.Bundle, error) {
	if s.etcdAnswered.Load() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if files, _, err := s.askBootstrap(ctx); err == nil && files != nil {
			return supervisor.Bundle(files), nil
		}
	}
	files, err := s.readShared()
	return supervisor.Bundle(files), err
}
