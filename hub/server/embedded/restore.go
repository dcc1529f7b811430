package embedded

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.uber.org/zap"
)

const (
	// maxKeyFile bounds a file in an archive of keys.
	maxKeyFile = 1 << 20
	// revisionBump is how far a restored etcd's revision is ahead of the snapshot's, so that no client sees a version again that it has
	// seen with another content (https://etcd.io/docs/v3.6/op-guide/recovery).
	revisionBump = 1_000_000_000
)

// Restore makes the data directory of a hub from a snapshot and the keys that belong to it. It changes nothing where either does not fit or
// where there is data already.
func Restore(opts Options, snapshotFile, keysFile string) error {
	dataDir, err := prepareDataDir(opts.DataDir)
	if err != nil {
		return err
	}
	opts.DataDir = dataDir
	lock, err := lockDataDir(opts.DataDir)
	if err != nil {
		return err
	}
	defer lock.release()
	if _, err := os.Stat(opts.etcdDir()); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s exists already; restore into a new --data-dir, or move that directory away", opts.etcdDir())
	}
	keys, err := readArchive(keysFile)
	if err != nil {
		return err
	}
	names, err := parseKeys(keysFile, keys[encryptionPrefix+EncryptionConfig])
	if err != nil {
		return err
	}
	if err := checkSnapshot(snapshotFile, names); err != nil {
		return err
	}
	for _, name := range keyFiles {
		target := opts.keyPath(name)
		if err := os.MkdirAll(filepath.Dir(target), 0o700); err != nil {
			return fmt.Errorf("making %s: %w", filepath.Dir(target), err)
		}
		if err := writeFile(target, keys[name], 0o600); err != nil {
			return err
		}
	}
	err = snapshot.NewV3(zap.NewNop()).Restore(snapshot.RestoreConfig{
		SnapshotPath: snapshotFile, Name: etcdName, OutputDataDir: opts.etcdDir(),
		PeerURLs: []string{nowhere.String()}, InitialCluster: etcdName + "=" + nowhere.String(), InitialClusterToken: "etcd-cluster",
		RevisionBump: revisionBump, MarkCompacted: true,
	})
	if err != nil {
		return fmt.Errorf("restoring etcd from %s: %w", snapshotFile, err)
	}
	return nil
}

// readArchive reads the files of an archive of keys, which must be those of SaveKeys and no others.
func readArchive(path string) (map[string][]byte, error) {
	in, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("reading the keys: %w", err)
	}
	defer func() { _ = in.Close() }()
	files := map[string][]byte{}
	for archive := tar.NewReader(in); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("%s is not an archive of keys: %w", path, err)
		}
		if header.Size > maxKeyFile || header.Typeflag != tar.TypeReg {
			return nil, fmt.Errorf("%s is not an archive of keys: it holds %q", path, header.Name)
		}
		if files[header.Name], err = io.ReadAll(archive); err != nil {
			return nil, fmt.Errorf("reading %s from %s: %w", header.Name, path, err)
		}
	}
	for _, name := range keyFiles {
		if _, ok := files[name]; !ok {
			return nil, fmt.Errorf("%s is not an archive of keys: it does not hold %s", path, name)
		}
	}
	return files, nil
}

var (
	secretKeyPrefix = []byte("/registry/secrets/")
	// encryptedPrefix begins a value that the API server has encrypted; the name of the key follows, up to a colon.
	encryptedPrefix = []byte("k8s:enc:secretbox:v1:")
)

// checkSnapshot reports whether a snapshot is whole, and whether the Secrets in it can be decrypted with the keys of these names.
func checkSnapshot(path string, keys []string) error {
	if _, err := snapshot.NewV3(zap.NewNop()).Status(path); err != nil {
		return fmt.Errorf("%s is not a whole snapshot of etcd: %w", path, err)
	}
	db, err := bolt.Open(path, 0o400, &bolt.Options{ReadOnly: true})
	if err != nil {
		return fmt.Errorf("opening %s: %w", path, err)
	}
	defer func() { _ = db.Close() }()
	return db.View(func(tx *bolt.Tx) error {
		bucket := tx.Bucket([]byte("key"))
		if bucket == nil {
			return fmt.Errorf("%s is not a snapshot of etcd", path)
		}
		return bucket.ForEach(func(_, raw []byte) error {
			var kv mvccpb.KeyValue
			if err := kv.Unmarshal(raw); err != nil {
				return fmt.Errorf("reading %s: %w", path, err)
			}
			rest, encrypted := bytes.CutPrefix(kv.Value, encryptedPrefix)
			if !encrypted || !bytes.HasPrefix(kv.Key, secretKeyPrefix) {
				return nil
			}
			name, _, _ := bytes.Cut(rest, []byte(":"))
			if !slices.Contains(keys, string(name)) {
				return fmt.Errorf("the Secrets in %s are encrypted with key %s, which is not among the keys (%v); restore it with the archive of "+
					"keys that was saved with it", path, name, keys)
			}
			return nil
		})
	})
}
