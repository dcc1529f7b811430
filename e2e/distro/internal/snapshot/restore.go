package snapshot

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/mvccpb"
	etcdutl "go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.uber.org/zap"
)

const (
	// lockTimeout is how long to wait for an etcd that is just ending.
	lockTimeout = 5 * time.Second
	// deletionLength is that of a revision (two numbers with a separator) and the mark of a deletion.
	deletionLength = 8 + 1 + 8 + 1
)

// Member is the only member of the cluster that a restored folder belongs to.
type Member struct{ Name, PeerURL string }

// Restore makes a data folder of etcd, which must not be there, from a snapshot. A fault leaves no folder.
func Restore(file, dataDir string, m Member) (err error) {
	if _, err := os.Stat(file); err != nil {
		return fmt.Errorf("snapshot to restore: %w", err)
	}
	if strings.HasSuffix(file, Compressed) {
		plain := dataDir + ".snapshot"
		defer os.Remove(plain)
		if err := decompress(file, plain); err != nil {
			return err
		}
		file = plain
	}
	if err := Verify(file); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(dataDir))
		}
	}()
	err = etcdutl.NewV3(zap.NewNop()).Restore(etcdutl.RestoreConfig{
		SnapshotPath: file, Name: m.Name, OutputDataDir: dataDir, PeerURLs: []string{m.PeerURL},
		InitialCluster: m.Name + "=" + m.PeerURL, InitialClusterToken: "etcd-cluster",
	})
	if err != nil {
		return fmt.Errorf("restoring %s: %w", file, err)
	}
	return nil
}

// Read returns the values of all keys that begin with a prefix, as they are in the data folder of an etcd that does not run.
func Read(dataDir, prefix string) (map[string][]byte, error) {
	file := filepath.Join(dataDir, "member", "snap", "db")
	if _, err := os.Stat(file); err != nil {
		return nil, err
	}
	db, err := bbolt.Open(file, 0o400, &bbolt.Options{ReadOnly: true, Timeout: lockTimeout})
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", file, err)
	}
	defer db.Close()
	out := map[string][]byte{}
	err = db.View(func(tx *bbolt.Tx) error {
		revisions := tx.Bucket([]byte("key"))
		if revisions == nil {
			return nil
		}
		// The keys of the bucket are revisions in their order; one of a deletion has a mark behind it.
		return revisions.ForEach(func(revision, raw []byte) error {
			var kv mvccpb.KeyValue
			if err := kv.Unmarshal(raw); err != nil {
				return err
			}
			switch key := string(kv.Key); {
			case !strings.HasPrefix(key, prefix):
			case len(revision) == deletionLength:
				delete(out, key)
			default:
				out[key] = kv.Value
			}
			return nil
		})
	})
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", file, err)
	}
	return out, nil
}
