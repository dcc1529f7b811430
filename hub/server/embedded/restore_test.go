package embedded

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.uber.org/zap"
)

// saveTestBackup saves the backup of a hub in which write has written, and returns the hub's options.
func saveTestBackup(t *testing.T, write func(context.Context, *clientv3.Client) error) (opts Options, data, keys string) {
	t.Helper()
	opts = Options{DataDir: filepath.Join(t.TempDir(), "data"), EncryptionKeyDir: filepath.Join(t.TempDir(), "keys")}
	etcd := startTestEtcd(t, opts)
	client := newLocalClient(etcd.member)
	err := write(t.Context(), client)
	_ = client.Close()
	etcd.close()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := makeKey(opts.encryptionKeyDir(), opts.keyPath(keyFiles[0])); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(opts.DataDir, "tls"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range keyFiles[1:] {
		if err := os.WriteFile(opts.keyPath(name), []byte("content of "+name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	data, keys = filepath.Join(t.TempDir(), "data.db"), filepath.Join(t.TempDir(), "keys.tar")
	if _, err := SaveSnapshot(t.Context(), opts, data); err != nil {
		t.Fatal(err)
	}
	if err := SaveKeys(opts, keys); err != nil {
		t.Fatal(err)
	}
	return opts, data, keys
}

func writeNothing(context.Context, *clientv3.Client) error { return nil }

// TestRestoreKeepsKeys: a restore does not replace a key that differs from that of the archive; the same keys are no obstacle.
func TestRestoreKeepsKeys(t *testing.T) {
	_, data, keys := saveTestBackup(t, writeNothing)
	for _, name := range keyFiles {
		t.Run(name, func(t *testing.T) {
			opts := Options{DataDir: filepath.Join(t.TempDir(), "data"), EncryptionKeyDir: filepath.Join(t.TempDir(), "keys")}
			path := opts.keyPath(name)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte("another hub's"), 0o600); err != nil {
				t.Fatal(err)
			}
			err := Restore(opts, data, keys)
			if err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "--data-dir") ||
				!strings.Contains(err.Error(), "--encryption-key-dir") {
				t.Errorf("got %v", err)
			}
			if raw, err := os.ReadFile(path); err != nil || string(raw) != "another hub's" {
				t.Errorf("the key was replaced: %q, %v", raw, err)
			}
			if _, err := os.Stat(opts.etcdDir()); err == nil {
				t.Error("etcd was restored")
			}
		})
	}
}

// TestRestoreBesideSameKeys: where only etcd's directory was lost, a restore goes on with the keys that are there.
func TestRestoreBesideSameKeys(t *testing.T) {
	opts, data, keys := saveTestBackup(t, writeNothing)
	if err := Restore(opts, data, keys); err == nil || !strings.Contains(err.Error(), "move all of "+opts.DataDir) {
		t.Errorf("etcd's directory exists: %v", err)
	}
	if err := os.RemoveAll(opts.etcdDir()); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(opts.etcdDir()+".restoring", "member"), 0o700); err != nil { // of a restore that was killed
		t.Fatal(err)
	}
	if err := Restore(opts, data, keys); err != nil {
		t.Fatal(err)
	}
	if got, want := namesIn(t, opts.DataDir), []string{"etcd", "hub.lock", "tls"}; !slices.Equal(got, want) {
		t.Errorf("the data directory holds %v, want %v", got, want)
	}
	startTestEtcd(t, opts).close()
}

// TestRestoreWrongChecksum: a snapshot that etcd's own check refuses leaves nothing behind.
func TestRestoreWrongChecksum(t *testing.T) {
	_, data, keys := saveTestBackup(t, writeNothing)
	raw, err := os.ReadFile(data)
	if err != nil {
		t.Fatal(err)
	}
	raw[len(raw)-1] ^= 1
	if err := os.WriteFile(data, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	opts := Options{DataDir: filepath.Join(t.TempDir(), "data")}
	if err := Restore(opts, data, keys); err == nil || !strings.Contains(err.Error(), "sha256") {
		t.Errorf("got %v", err)
	}
	if got := namesIn(t, opts.DataDir); !slices.Equal(got, []string{"hub.lock"}) {
		t.Errorf("the data directory holds %v", got)
	}
}

// TestRestoreKeysInEtcd: a location of the keys that the hub would refuse is refused.
func TestRestoreKeysInEtcd(t *testing.T) {
	_, data, keys := saveTestBackup(t, writeNothing)
	opts := Options{DataDir: filepath.Join(t.TempDir(), "data")}
	opts.EncryptionKeyDir = filepath.Join(opts.etcdDir(), "keys")
	if err := Restore(opts, data, keys); err == nil || !strings.Contains(err.Error(), "choose another one") {
		t.Errorf("got %v", err)
	}
}

// TestRestoredKeyDir: a hub that is started without the directory of the keys that it was restored into, refuses to start. If it created
// another key, it could read no Secret, and would want that key from then on.
func TestRestoredKeyDir(t *testing.T) {
	_, data, keys := saveTestBackup(t, writeNothing)
	opts := Options{DataDir: filepath.Join(t.TempDir(), "data"), EncryptionKeyDir: filepath.Join(t.TempDir(), "keys")}
	if err := Restore(opts, data, keys); err != nil {
		t.Fatal(err)
	}
	without := Options{DataDir: opts.DataDir}
	_, err := ensureEncryption(without.encryptionKeyDir(), without.etcdDir())
	if err == nil || !strings.Contains(err.Error(), "is missing") || !strings.Contains(err.Error(), "--encryption-key-dir") {
		t.Errorf("without the directory of the keys: %v", err)
	}
	if _, err := os.Stat(without.encryptionKeyDir()); err == nil {
		t.Error("another key was created")
	}
	if e, err := ensureEncryption(opts.encryptionKeyDir(), opts.etcdDir()); err != nil || !e.rewrite {
		t.Errorf("with the directory of the keys: %+v, %v", e, err)
	}
}

// TestSaveOtherKeys: keys that do not decrypt the hub's Secrets are not saved as if they did.
func TestSaveOtherKeys(t *testing.T) {
	opts, _, _ := saveTestBackup(t, writeNothing)
	if _, err := ensureEncryption(opts.encryptionKeyDir(), opts.etcdDir()); err != nil { // as the hub does when it starts
		t.Fatal(err)
	}
	target := filepath.Join(t.TempDir(), "keys.tar")
	without := Options{DataDir: opts.DataDir}
	if err := SaveKeys(without, target); err == nil || !strings.Contains(err.Error(), "--encryption-key-dir") {
		t.Errorf("no keys in the default directory: %v", err)
	}
	if _, err := makeKey(without.encryptionKeyDir(), without.keyPath(keyFiles[0])); err != nil {
		t.Fatal(err)
	}
	if err := SaveKeys(without, target); err == nil || !strings.Contains(err.Error(), "--encryption-key-dir") {
		t.Errorf("other keys in the default directory: %v", err)
	}
	if _, err := os.Stat(target); err == nil {
		t.Error("an archive was written")
	}
	if err := SaveKeys(opts, target); err != nil {
		t.Error(err)
	}
}

func namesIn(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

// TestSupersededKey: a key is needed for Secrets that are encrypted with it now, not for what they were before.
func TestSupersededKey(t *testing.T) {
	const secret, old, present = "/registry/secrets/default/", "k8s:enc:secretbox:v1:old:x", "k8s:enc:secretbox:v1:present:x"
	for name, tt := range map[string]struct {
		write func(context.Context, *clientv3.Client) error
		want  string
	}{
		"written again": {func(ctx context.Context, client *clientv3.Client) error {
			return put(ctx, client, secret+"one", old, secret+"one", present)
		}, ""},
		"deleted": {func(ctx context.Context, client *clientv3.Client) error {
			if err := put(ctx, client, secret+"one", old); err != nil {
				return err
			}
			_, err := client.Delete(ctx, secret+"one")
			return err
		}, ""},
		"another kind": {func(ctx context.Context, client *clientv3.Client) error {
			return put(ctx, client, "/registry/configmaps/default/one", old)
		}, ""},
		"one is left": {func(ctx context.Context, client *clientv3.Client) error {
			return put(ctx, client, secret+"one", old, secret+"two", old, secret+"one", present)
		}, "encrypted with key old, which is not among the keys"},
		"deleted and created": {func(ctx context.Context, client *clientv3.Client) error {
			if err := put(ctx, client, secret+"one", present); err != nil {
				return err
			}
			if _, err := client.Delete(ctx, secret+"one"); err != nil {
				return err
			}
			return put(ctx, client, secret+"one", old)
		}, "encrypted with key old, which is not among the keys"},
	} {
		t.Run(name, func(t *testing.T) {
			_, data, _ := saveTestBackup(t, tt.write)
			got := ""
			if err := checkSnapshot(data, []string{"present"}); err != nil {
				got = err.Error()
			}
			if (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// put writes pairs of keys and values, in order.
func put(ctx context.Context, client *clientv3.Client, pairs ...string) error {
	for pair := range slices.Chunk(pairs, 2) {
		if _, err := client.Put(ctx, pair[0], pair[1]); err != nil {
			return err
		}
	}
	return nil
}

// TestSnapshotOfData: what the page says to make of the data of a server that is left is a snapshot that RKE2 and k3s restore. They have
// etcd check it, which refuses the data alone.
func TestSnapshotOfData(t *testing.T) {
	page, err := os.ReadFile("../../../docs/kinds/etcdsnapshotrestore.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, found := strings.Cut(string(page), "```\nrke2-killall.sh")
	block, _, _ = strings.Cut(block, "```")
	_, commands, _ := strings.Cut(block, "\n")
	if !found || commands == "" {
		t.Fatal("the page has no commands")
	}
	opts := Options{DataDir: t.TempDir()}
	etcd := startTestEtcd(t, opts)
	client := newLocalClient(etcd.member)
	err = put(t.Context(), client, "/registry/configmaps/default/one", "value")
	_ = client.Close()
	etcd.close()
	if err != nil {
		t.Fatal(err)
	}
	data, file := filepath.Join(opts.etcdDir(), "member", "snap", "db"), filepath.Join(t.TempDir(), "survivor")
	commands = strings.NewReplacer("/var/lib/rancher/rke2/server/db/etcd/member/snap/db", data, "/var/tmp/survivor", file).Replace(commands)
	if out, err := exec.CommandContext(t.Context(), "/bin/sh", "-euc", commands).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	restore := func(from string) error {
		return snapshot.NewV3(zap.NewNop()).Restore(snapshot.RestoreConfig{SnapshotPath: from, Name: etcdName,
			OutputDataDir: filepath.Join(t.TempDir(), "etcd"), PeerURLs: []string{nowhere.String()},
			InitialCluster: etcdName + "=" + nowhere.String(), InitialClusterToken: "etcd-cluster"})
	}
	if err := restore(data); err == nil || !strings.Contains(err.Error(), "hash") {
		t.Errorf("the data alone: %v", err)
	}
	if err := restore(file); err != nil {
		t.Error(err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file: %v, %v", info, err)
	}
}
