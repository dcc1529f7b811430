package embedded

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.uber.org/zap"
)

// Snapshot describes a snapshot of the hub's etcd.
type Snapshot struct {
	// Keys is how many keys etcd holds, Bytes the size of the file.
	Keys  int
	Bytes int64
	// Revision is etcd's revision.
	Revision int64
}

// SaveSnapshot writes a snapshot of the etcd of a hub to a new file of mode 0600. The hub may be running. Secrets in it are encrypted; what
// decrypts them is not in it, see SaveKeys.
func SaveSnapshot(ctx context.Context, opts Options, path string) (Snapshot, error) {
	if err := checkNew(path); err != nil {
		return Snapshot{}, err
	}
	endpoint, stop, err := etcdOf(ctx, opts)
	if err != nil {
		return Snapshot{}, err
	}
	defer stop()
	manager := snapshot.NewV3(zap.NewNop())
	if _, err := manager.Save(ctx, clientv3.Config{Endpoints: []string{endpoint}, Logger: zap.NewNop()}, path); err != nil {
		return Snapshot{}, fmt.Errorf("saving a snapshot of etcd: %w", err)
	}
	if err := syncDir(filepath.Dir(path)); err != nil {
		return Snapshot{}, err
	}
	status, err := manager.Status(path)
	if err != nil {
		return Snapshot{}, fmt.Errorf("checking the snapshot %s: %w", path, err)
	}
	return Snapshot{Keys: status.TotalKey, Bytes: status.TotalSize, Revision: status.Revision}, nil
}

// etcdOf returns the endpoint of the etcd in a data directory: that of the hub that runs there, or one that is started for this and ends
// with stop.
func etcdOf(ctx context.Context, opts Options) (endpoint string, stop func(), err error) {
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.DataDir, err = filepath.Abs(opts.DataDir); err != nil {
		return "", nil, fmt.Errorf("resolving data directory: %w", err)
	}
	if _, err := os.Stat(filepath.Join(opts.etcdDir(), "member")); err != nil {
		return "", nil, fmt.Errorf("%s is not the data directory of a hub with an embedded API server: %w", opts.DataDir, err)
	}
	lock, err := lockDataDir(opts.DataDir)
	if err != nil {
		socket, release, socketErr := runningSocket(opts.etcdDir())
		if socketErr != nil {
			return "", nil, fmt.Errorf("%w, and its etcd cannot be reached: %w", err, socketErr)
		}
		return "unix://" + socket, release, nil
	}
	etcd, err := startEtcd(ctx, opts)
	if err != nil {
		lock.release()
		return "", nil, err
	}
	return etcd.endpoint, func() { etcd.close(); lock.release() }, nil
}

// keyFiles are what a restored hub needs beside a snapshot, by their names in the archive of SaveKeys.
var keyFiles = []string{
	encryptionPrefix + EncryptionConfig,
	"tls/server-ca.crt", "tls/server-ca.key", "tls/client-ca.crt", "tls/client-ca.key", "tls/service-account.key",
}

const encryptionPrefix = "encryption/"

// keyPath is where a file of the archive is kept.
func (o Options) keyPath(name string) string {
	if base, ok := strings.CutPrefix(name, encryptionPrefix); ok {
		return filepath.Join(o.encryptionKeyDir(), base)
	}
	return filepath.Join(o.DataDir, filepath.FromSlash(name))
}

// SaveKeys writes a tar archive, a new file of mode 0600, with what a restored hub needs beside a snapshot: the encryption key, the
// certificate authorities and the key of ServiceAccount tokens. Whoever has it and a snapshot can read every Secret. It writes nothing if
// Secrets are encrypted with a key that is not among those in the directory of the keys, or if the file exists and has the same content.
func SaveKeys(opts Options, path string) error {
	var buffer bytes.Buffer
	archive := tar.NewWriter(&buffer)
	for _, name := range keyFiles {
		raw, err := os.ReadFile(opts.keyPath(name))
		if err != nil {
			return fmt.Errorf("%s is not the data directory of a hub with an embedded API server, or --encryption-key-dir is not that of "+
				"the hub: %w", opts.DataDir, err)
		}
		if name == keyFiles[0] {
			if err := checkSavedKeys(opts, opts.keyPath(name), raw); err != nil {
				return err
			}
		}
		header := &tar.Header{Name: name, Mode: 0o600, Size: int64(len(raw)), Typeflag: tar.TypeReg}
		if err := archive.WriteHeader(header); err != nil {
			return fmt.Errorf("packing %s: %w", name, err)
		}
		if _, err := archive.Write(raw); err != nil {
			return fmt.Errorf("packing %s: %w", name, err)
		}
	}
	if err := archive.Close(); err != nil {
		return fmt.Errorf("packing the keys: %w", err)
	}
	if saved, err := os.ReadFile(path); err == nil && bytes.Equal(saved, buffer.Bytes()) {
		return nil
	}
	if err := checkNew(path); err != nil {
		return err
	}
	return writeFile(path, buffer.Bytes(), 0o600)
}

// checkSavedKeys returns an error unless the encryption keys in raw, the content of a file, are all those that Secrets in etcd are
// encrypted with: without one of them an archive is none that a snapshot can be restored with.
func checkSavedKeys(opts Options, path string, raw []byte) error {
	names, err := parseKeys(path, raw)
	if err != nil {
		return err
	}
	used, err := readState(filepath.Join(opts.etcdDir(), encryptionState))
	if err != nil {
		return err
	}
	for _, key := range used.keys() {
		if !slices.Contains(names, key) {
			return fmt.Errorf("%s does not have key %s, with which Secrets in %s are encrypted; name the hub's --encryption-key-dir",
				path, key, opts.etcdDir())
		}
	}
	return nil
}

// checkNew returns an error if a file exists, or if that is unknown.
func checkNew(path string) error {
	exists, err := fileExists(path)
	if exists {
		return fmt.Errorf("%s exists already; choose another file, or remove it", path)
	}
	return err
}
