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
	"strings"
	"time"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.uber.org/zap"
)

const (
	// maxKeyFile bounds a file in an archive of keys.
	maxKeyFile = 1 << 20
	// revisionBump is how far a restored etcd's revision is ahead of the snapshot's, so that no client sees a version again that it has
	// seen with another content (https://etcd.io/docs/v3.6/op-guide/recovery).
	revisionBump = 1_000_000_000
	// restoredFile is the name of the file, beside etcd's data, with the time at which they were restored from a snapshot.
	restoredFile = "restored-at"
)

// Restore makes the data directory of a hub from a snapshot and the archive of keys that belongs to it. It restores nothing where the two
// do not fit together, where etcd's directory exists, or where a file of the archive exists with other content; the error says what to do.
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
	if exists, err := fileExists(opts.etcdDir()); err != nil {
		return err
	} else if exists {
		return fmt.Errorf("%s exists already; %s, or move all of %s away", opts.etcdDir(), restoreElsewhere, opts.DataDir)
	}
	if err := checkKeyDir(opts.encryptionKeyDir(), opts.etcdDir()); err != nil {
		return err
	}
	keys, err := readArchive(keysFile)
	if err != nil {
		return err
	}
	names, err := parseKeys(keysFile, keys[encryptionPrefix+EncryptionConfig])
	if err != nil {
		return err
	}
	if err := checkKeyFiles(opts, keys, keysFile); err != nil {
		return err
	}
	if err := checkSnapshot(snapshotFile, names); err != nil {
		return err
	}
	return restore(opts, snapshotFile, keys, names)
}

// restoreElsewhere is the advice where files of another hub are in the way.
const restoreElsewhere = "restore into a new --data-dir, and with --encryption-key-dir into a new directory for the keys"

// checkKeyFiles returns an error if a file of an archive of keys would replace one with other content: without those keys nobody can read
// what was encrypted with them, and the machines of that hub are locked out.
func checkKeyFiles(opts Options, keys map[string][]byte, keysFile string) error {
	for _, name := range keyFiles {
		path := opts.keyPath(name)
		present, err := os.ReadFile(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return fmt.Errorf("comparing with the keys in %s: %w", keysFile, err)
		case !bytes.Equal(present, keys[name]):
			return fmt.Errorf("%s exists already and is not the one in %s; %s, or save the file elsewhere and move it away", path, keysFile,
				restoreElsewhere)
		}
	}
	return nil
}

// restore writes etcd's data beside their place, then the keys, and moves the data to their place last. A snapshot that turns out to be
// damaged leaves nothing behind. The data say by which keys their Secrets are encrypted, names, so that a hub that is started with another
// directory of keys refuses to start instead of creating a key.
func restore(opts Options, snapshotFile string, keys map[string][]byte, names []string) error {
	restoring := opts.etcdDir() + ".restoring"
	if err := os.RemoveAll(restoring); err != nil {
		return fmt.Errorf("removing what an interrupted restore has left: %w", err)
	}
	defer func() { _ = os.RemoveAll(restoring) }()
	err := snapshot.NewV3(zap.NewNop()).Restore(snapshot.RestoreConfig{
		SnapshotPath: snapshotFile, Name: etcdName, OutputDataDir: restoring,
		PeerURLs: []string{nowhere.String()}, InitialCluster: etcdName + "=" + nowhere.String(), InitialClusterToken: "etcd-cluster",
		RevisionBump: revisionBump, MarkCompacted: true,
	})
	if err != nil {
		return fmt.Errorf("restoring etcd from %s: %w", snapshotFile, err)
	}
	e := &encryption{stateFile: filepath.Join(restoring, encryptionState)}
	if err := e.writeState(state{Key: names[0], Previous: names[1:]}); err != nil {
		return err
	}
	now := time.Now().UTC().Format(time.RFC3339)
	if err := writeFile(filepath.Join(restoring, restoredFile), []byte(now+"\n"), 0o600); err != nil {
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
	if err := os.Rename(restoring, opts.etcdDir()); err != nil {
		return fmt.Errorf("moving the restored data to their place: %w", err)
	}
	return syncDir(opts.DataDir)
}

// readRestored returns when the data in etcd's directory were restored from a snapshot; zero if they were not.
func readRestored(etcdDir string) (time.Time, error) {
	path := filepath.Join(etcdDir, restoredFile)
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("reading when etcd was restored: %w", err)
	}
	at, err := time.Parse(time.RFC3339, strings.TrimSpace(string(raw)))
	if err != nil {
		return time.Time{}, fmt.Errorf("%s must hold the time at which etcd was restored: %w", path, err)
	}
	return at, nil
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

// checkSnapshot returns an error if a snapshot is damaged, or if a Secret in it is encrypted with none of the keys of these names.
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
		used, err := encryptionKeys(bucket)
		if err != nil {
			return fmt.Errorf("reading %s: %w", path, err)
		}
		for _, name := range used {
			if !slices.Contains(keys, name) {
				return fmt.Errorf("the Secrets in %s are encrypted with key %s, which is not among the keys (%v); restore it with the archive of "+
					"keys that was saved with it", path, name, keys)
			}
		}
		return nil
	})
}

// encryptionKeys returns the name of the key that each encrypted Secret is encrypted with, by the Secret's key in etcd. A snapshot also
// holds earlier revisions, which a restored hub does not read: they may be encrypted with keys that were removed since.
func encryptionKeys(revisions *bolt.Bucket) (map[string]string, error) {
	used := map[string]string{}
	err := revisions.ForEach(func(revision, raw []byte) error { // in the order of revisions
		var kv mvccpb.KeyValue
		if err := kv.Unmarshal(raw); err != nil {
			return err
		}
		if !bytes.HasPrefix(kv.Key, secretKeyPrefix) {
			return nil
		}
		rest, encrypted := bytes.CutPrefix(kv.Value, encryptedPrefix)
		if !encrypted || mvcc.IsTombstone(revision) {
			delete(used, string(kv.Key))
			return nil
		}
		name, _, _ := bytes.Cut(rest, []byte(":"))
		used[string(kv.Key)] = string(name)
		return nil
	})
	return used, err
}
