package embedded

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// TestBackup backs up a running hub and restores it into an empty directory: its Secrets are there, and credentials that it has issued are
// valid.
func TestBackup(t *testing.T) {
	opts := Options{DataDir: filepath.Join(t.TempDir(), "data"), EncryptionKeyDir: filepath.Join(t.TempDir(), "keys")}
	server, client := start(t, opts)
	createSecret(t, client, "one")
	before, err := client.CoreV1().Secrets("default").Get(t.Context(), "one", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	out := t.TempDir()
	data, keys := filepath.Join(out, "data.db"), filepath.Join(out, "keys.tar")
	saved, err := SaveSnapshot(t.Context(), opts, data)
	if err != nil || saved.Keys == 0 || saved.Bytes == 0 {
		t.Fatalf("saving while the hub runs: %+v, %v", saved, err)
	}
	if err := SaveKeys(opts, keys); err != nil {
		t.Fatal(err)
	}
	if err := SaveKeys(opts, keys); err != nil {
		t.Errorf("saving the same keys to the same file: %v", err)
	}
	other := filepath.Join(t.TempDir(), "other.tar")
	if err := os.WriteFile(other, []byte("other keys"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := SaveKeys(opts, other); err == nil || !strings.Contains(err.Error(), "exists already") {
		t.Errorf("a file with other content: %v", err)
	}
	if at := server.Restored(); !at.IsZero() {
		t.Errorf("a hub that was not restored was at %s", at)
	}
	createSecret(t, client, "later")
	config, err := clientcmd.BuildConfigFromFlags("", server.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	stop(t, server)

	if found := filesWith(t, out, secretValue); len(found) > 0 {
		t.Errorf("the content of a Secret is in %v", found)
	}
	for _, path := range []string{data, keys} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
	if _, err := SaveSnapshot(t.Context(), opts, data); err == nil || !strings.Contains(err.Error(), "exists already") {
		t.Errorf("a file that exists: %v", err)
	}
	if saved, err := SaveSnapshot(t.Context(), opts, filepath.Join(out, "stopped.db")); err != nil || saved.Keys == 0 {
		t.Errorf("saving while the hub does not run: %+v, %v", saved, err)
	}

	restored := Options{DataDir: filepath.Join(t.TempDir(), "data")}
	if err := Restore(restored, data, keys); err != nil {
		t.Fatal(err)
	}
	if err := Restore(restored, data, keys); err == nil || !strings.Contains(err.Error(), "exists already") {
		t.Errorf("restoring over data: %v", err)
	}
	server, client = start(t, restored)
	wantSecret(t, client, "one")
	if since := time.Since(server.Restored()); since < 0 || since > 10*time.Minute {
		t.Errorf("restored at %s", server.Restored())
	}
	if _, err := client.CoreV1().Secrets("default").Get(t.Context(), "later", metav1.GetOptions{}); err == nil {
		t.Error("what was written after the snapshot is there")
	}
	after, err := client.CoreV1().Secrets("default").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(after.ResourceVersion) <= len(before.ResourceVersion) {
		t.Errorf("version %s of the list does not come after %s: %v", after.ResourceVersion, before.ResourceVersion, err)
	}
	// The administrator's certificate of the old hub is one of the new hub's authority.
	config.Host = server.RestConfig().Host
	old, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	wantSecret(t, old, "one")
}

// TestSaveLongDataDir saves a snapshot of a running hub whose data directory has a path that is too long for a socket in it, from a process
// that has another directory for temporary files.
func TestSaveLongDataDir(t *testing.T) {
	opts, out := Options{DataDir: filepath.Join(t.TempDir(), strings.Repeat("d", 120))}, t.TempDir()
	etcd := startTestEtcd(t, opts)
	defer etcd.close()
	lock, err := lockDataDir(opts.DataDir)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.release()
	t.Setenv("TMPDIR", filepath.Join(out, "missing"))
	if _, err := SaveSnapshot(t.Context(), opts, filepath.Join(out, "data.db")); err != nil {
		t.Errorf("saving while the hub runs: %v", err)
	}
	etcd.close()
	if _, err := SaveSnapshot(t.Context(), opts, filepath.Join(out, "refused.db")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("etcd does not run: %v", err)
	}
}

func TestRestoreRefuses(t *testing.T) {
	opts := Options{DataDir: filepath.Join(t.TempDir(), "data")}
	server, client := start(t, opts)
	createSecret(t, client, "one")
	out := t.TempDir()
	data, keys, others := filepath.Join(out, "data.db"), filepath.Join(out, "keys.tar"), filepath.Join(out, "others.tar")
	if _, err := SaveSnapshot(t.Context(), opts, data); err != nil {
		t.Fatal(err)
	}
	if err := SaveKeys(opts, keys); err != nil {
		t.Fatal(err)
	}
	stop(t, server)
	if err := os.RemoveAll(opts.encryptionKeyDir()); err != nil {
		t.Fatal(err)
	}
	if _, err := makeKey(opts.encryptionKeyDir(), opts.keyPath(keyFiles[0])); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(opts.etcdDir(), encryptionState)); err != nil { // so that the keys are those of another hub
		t.Fatal(err)
	}
	if err := SaveKeys(opts, others); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(data)
	if err != nil {
		t.Fatal(err)
	}
	damaged := filepath.Join(out, "damaged.db")
	if err := os.WriteFile(damaged, append(bytes.Repeat([]byte{0}, 8192), raw[8192:]...), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct{ data, keys, want string }{
		"keys of another hub": {data, others, "which is not among the keys"},
		"damaged snapshot":    {damaged, keys, "is not a whole snapshot"},
		"no snapshot":         {keys, keys, "is not a whole snapshot"},
		"no keys":             {data, data, "is not an archive of keys"},
		"missing":             {data, filepath.Join(out, "missing"), "no such file"},
	} {
		dir := filepath.Join(t.TempDir(), "data")
		err := Restore(Options{DataDir: dir}, tt.data, tt.keys)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %q", name, err, tt.want)
		}
		if _, err := os.Stat(filepath.Join(dir, "etcd")); err == nil {
			t.Errorf("%s: something was restored", name)
		}
		if _, err := os.Stat(filepath.Join(dir, "tls")); err == nil {
			t.Errorf("%s: keys were restored", name)
		}
	}
}
