package embedded

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// secretValue must not be in any file except those of the keys.
const secretValue = "planted-in-a-secret"

func start(t *testing.T, opts Options) (*Server, kubernetes.Interface) {
	t.Helper()
	opts.UnsafeNoFsync = true
	server, err := Start(context.Background(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Stop() })
	client, err := kubernetes.NewForConfig(server.RestConfig())
	if err != nil {
		t.Fatal(err)
	}
	return server, client
}

func stop(t *testing.T, server *Server) {
	t.Helper()
	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}
}

func createSecret(t *testing.T, client kubernetes.Interface, name string) {
	t.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string][]byte{"value": []byte(secretValue)}}
	if _, err := client.CoreV1().Secrets("default").Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func wantSecret(t *testing.T, client kubernetes.Interface, name string) {
	t.Helper()
	secret, err := client.CoreV1().Secrets("default").Get(t.Context(), name, metav1.GetOptions{})
	if err != nil || string(secret.Data["value"]) != secretValue {
		t.Fatalf("Secret %s: got %q, %v", name, secret.Data["value"], err)
	}
}

// filesWith lists the files below a directory that contain a text.
func filesWith(t *testing.T, dir, text string) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		raw, err := os.ReadFile(path)
		if bytes.Contains(raw, []byte(text)) {
			found = append(found, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// putPlain writes a Secret into etcd as a hub without encryption does.
func putPlain(t *testing.T, dataDir, name string) {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{"unix://" + filepath.Join(dataDir, "etcd", etcdSocket)},
		Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	object := `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"` + name + `","namespace":"default","uid":"u-` + name +
		`"},"data":{"value":"cGxhbnRlZC1pbi1hLXNlY3JldA=="},"type":"Opaque"}`
	if _, err := client.Put(t.Context(), "/registry/secrets/default/"+name, object); err != nil {
		t.Fatal(err)
	}
}

// rawSecret returns a Secret as it is in etcd.
func rawSecret(t *testing.T, dataDir, name string) string {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{"unix://" + filepath.Join(dataDir, "etcd", etcdSocket)},
		Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	got, err := client.Get(t.Context(), "/registry/secrets/default/"+name)
	if err != nil || len(got.Kvs) != 1 {
		t.Fatalf("Secret %s in etcd: %v, %v", name, got, err)
	}
	return string(got.Kvs[0].Value)
}

func TestEncryptionAtRest(t *testing.T) {
	dir := t.TempDir()
	opts := Options{DataDir: dir, Audit: AuditOptions{Path: filepath.Join(dir, "audit", "api.log"), MaxSize: 1}}
	server, client := start(t, opts)
	createSecret(t, client, "new")
	readable := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "readable"}, Data: map[string]string{"value": "planted-in-a-configmap"}}
	if _, err := client.CoreV1().ConfigMaps("default").Create(t.Context(), readable, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().ConfigMaps("default").Get(t.Context(), "readable", metav1.GetOptions{}); err != nil {
		t.Fatal(err)
	}
	wantSecret(t, client, "new")

	// A hub that is older than encryption has left this.
	putPlain(t, dir, "old")
	if err := os.WriteFile(filepath.Join(dir, "etcd", encryptionState), []byte(`{}`), 0o600); err != nil {
		t.Fatal(err)
	}
	stop(t, server)
	if found := filesWith(t, dir, secretValue); len(found) > 0 {
		t.Errorf("the content of a Secret is in %v", found)
	}
	if len(filesWith(t, filepath.Join(dir, "etcd"), "planted-in-a-configmap")) == 0 {
		t.Error("a ConfigMap is not found in etcd's files either, so that this test shows nothing")
	}
	checkAudit(t, opts.Audit.Path)

	server, client = start(t, opts)
	wantSecret(t, client, "old")
	for _, name := range []string{"old", "new"} {
		if raw := rawSecret(t, dir, name); !strings.HasPrefix(raw, string(encryptedPrefix)) {
			t.Errorf("Secret %s is not encrypted in etcd", name)
		}
	}
	stop(t, server)

	// Without its key the hub does not start, and does not make another one.
	keys := filepath.Join(dir, "encryption", EncryptionConfig)
	kept, err := os.ReadFile(keys)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(keys); err != nil {
		t.Fatal(err)
	}
	if _, err := Start(t.Context(), opts); err == nil || !strings.Contains(err.Error(), "restore the file from your backup of keys") {
		t.Errorf("a start without the key: %v", err)
	}
	if _, err := os.Stat(keys); err == nil {
		t.Error("another key was made")
	}
	if err := os.WriteFile(keys, bytes.ReplaceAll(kept, []byte("name: key-"), []byte("name: other-")), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Start(t.Context(), opts); err == nil || !strings.Contains(err.Error(), "does not have key key-") {
		t.Errorf("a start with another key: %v", err)
	}
}

// checkAudit checks that the audit log has who wrote and read Secrets, but not their content.
func checkAudit(t *testing.T, path string) {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	count := func(verb, resource, name string) (n int) {
		for line := range strings.Lines(string(raw)) {
			if strings.Contains(line, `"verb":"`+verb+`"`) && strings.Contains(line, `"resource":"`+resource+`"`) &&
				strings.Contains(line, `"name":"`+name+`"`) {
				n++
			}
		}
		return n
	}
	for _, want := range []struct {
		verb, resource, name string
		n                    int
	}{
		{"create", "secrets", "new", 1}, {"get", "secrets", "new", 1}, {"create", "configmaps", "readable", 1},
		{"get", "configmaps", "readable", 0},
	} {
		if got := count(want.verb, want.resource, want.name); got != want.n {
			t.Errorf("%s %s %s stands %d times in the audit log, want %d", want.verb, want.resource, want.name, got, want.n)
		}
	}
	if strings.Contains(string(raw), "requestObject") {
		t.Error("the audit log holds bodies")
	}
}

// TestKeyReplacement: while Secrets are encrypted again with a new key, neither key may be lost; afterwards the old one may be.
func TestKeyReplacement(t *testing.T) {
	keyDir, etcdDir := t.TempDir(), t.TempDir()
	ensure := func(keys ...string) (*encryption, error) {
		t.Helper()
		config := "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: [secrets]\n  providers:\n  - secretbox:\n      keys:\n"
		for _, key := range keys {
			config += "      - {name: " + key + ", secret: YQ==}\n"
		}
		if err := os.WriteFile(filepath.Join(keyDir, EncryptionConfig), []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
		return ensureEncryption(keyDir, etcdDir)
	}
	for _, step := range []struct {
		keys    []string
		err     string
		rewrite bool
		// rewritten has all Secrets rewritten after the step.
		rewritten bool
	}{
		{keys: []string{"old"}, rewrite: true, rewritten: true},
		{keys: []string{"old"}},
		{keys: []string{"new"}, err: "does not have key old"},
		{keys: []string{"new", "old"}, rewrite: true},
		{keys: []string{"new"}, err: "does not have key old"},
		{keys: []string{"old"}, err: "does not have key new"},
		{keys: []string{"newest", "new", "old"}, rewrite: true},
		{keys: []string{"newest", "old"}, err: "does not have key new"},
		{keys: []string{"old", "newest", "new"}, rewrite: true},
		{keys: []string{"old", "newest", "new"}, rewrite: true, rewritten: true},
		{keys: []string{"old"}},
	} {
		e, err := ensure(step.keys...)
		if step.err != "" {
			if err == nil || !strings.Contains(err.Error(), step.err) {
				t.Fatalf("keys %v: got error %v, want %q", step.keys, err, step.err)
			}
			continue
		}
		if err != nil {
			t.Fatalf("keys %v: %v", step.keys, err)
		}
		if e.key != step.keys[0] || e.rewrite != step.rewrite {
			t.Fatalf("keys %v: got key %s and rewrite %v, want %s and %v", step.keys, e.key, e.rewrite, step.keys[0], step.rewrite)
		}
		if step.rewritten {
			if err := e.writeState(state{Key: e.key, Rewritten: true}); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestEnsureEncryption(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for _, keys := range []string{filepath.Join(dir, "etcd", "keys"), "etcd/keys", "etcd"} {
		_, err := ensureEncryption(keys, filepath.Join(dir, "etcd"))
		if err == nil || !strings.Contains(err.Error(), "choose another one") {
			t.Errorf("a key in etcd's directory, %s: %v", keys, err)
		}
	}
	for name, config := range map[string]string{
		"not YAML": "{",
		"no secrets": "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources: [{resources: [configmaps], " +
			"providers: [{identity: {}}]}]",
		"plain text": "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources: [{resources: [secrets], providers: " +
			"[{identity: {}}, {secretbox: {keys: [{name: a, secret: YQ==}]}}]}]",
		"a new key with the name of the old one": "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources: " +
			"[{resources: [secrets], providers: [{secretbox: {keys: [{name: a, secret: Yg==}, {name: a, secret: YQ==}]}}]}]",
	} {
		keys := t.TempDir()
		if err := os.WriteFile(filepath.Join(keys, EncryptionConfig), []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := ensureEncryption(keys, t.TempDir()); err == nil || !strings.Contains(err.Error(), EncryptionConfig) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
