package nodedriver_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/crypto/ssh"

	"github.com/drover-dev/drover/hub/nodedriver"
	"github.com/drover-dev/drover/hub/nodedriver/programs"
	"github.com/drover-dev/drover/hub/nodedriver/schema"
	fake "github.com/drover-dev/drover/hub/testenv/nodedriver"
)

const token = "planted-cloud-token"

// setup starts a cloud, and returns a machine of the driver lab.
func setup(t *testing.T, mode string) (*fake.Cloud, *nodedriver.Runner, *nodedriver.Machine) {
	t.Helper()
	cloud, err := fake.NewCloud(token)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cloud.Close() })
	program, err := fake.Build(t.TempDir(), mode)
	if err != nil {
		t.Fatal(err)
	}
	runner, err := nodedriver.NewRunner(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	m := &nodedriver.Machine{
		Driver: "lab", Program: &programs.Program{Path: program}, Name: "pool-1", Hostname: "pool-1-host",
		Spec:       map[string]any{"url": cloud.URL, "size": "3", "tags": []any{"a", "b"}, "privateNetworking": true},
		Credential: nodedriver.Credential("lab", map[string][]byte{"labcredentialConfig-token": []byte(token), "othercredentialConfig-x": nil}),
		Script:     []byte("#!/bin/sh\nexport CATTLE_TOKEN='planted-join-token'\necho $CATTLE_TOKEN\n"),
	}
	keepState(m)
	t.Cleanup(func() {
		if left, err := os.ReadDir(runner.Dir); err != nil && !os.IsNotExist(err) || len(left) > 0 {
			t.Errorf("left behind: %v, %v", left, err)
		}
	})
	return cloud, runner, m
}

// keepState has a machine saved as the hub does, encoded.
func keepState(m *nodedriver.Machine) {
	m.Save = func(_ context.Context, s *nodedriver.State) error {
		raw, err := s.Encode()
		if err != nil {
			return err
		}
		m.State, err = nodedriver.Decode(m.Name, raw)
		return err
	}
}

func noSecrets(t *testing.T, texts ...any) {
	t.Helper()
	text := fmt.Sprintln(texts...)
	for _, secret := range []string{token, "planted-join-token", "rotated-cloud-token"} {
		if strings.Contains(text, secret) {
			t.Errorf("%s is in %q", secret, text)
		}
	}
}

// A driver reaches its cloud through the proxy of the hub. The password of the proxy is no text for users.
func TestProxy(t *testing.T) {
	cloud, runner, m := setup(t, "")
	const password = "planted-proxy-password"
	proxy := strings.Replace(cloud.URL, "http://", "http://user:"+password+"@", 1)
	t.Setenv("http_proxy", proxy)
	t.Setenv("HTTP_PROXY", "")
	m.Spec["url"] = "http://cloud.example.com"
	if _, log, err := runner.Create(t.Context(), m); err != nil || cloud.Made() != 1 {
		t.Fatal(err, log)
	}
	cloud.SetFault(func(string, string) error { return errors.New("refused by " + proxy) })
	for _, scheme := range []string{"http://", ""} {
		t.Setenv("http_proxy", strings.Replace(proxy, "http://", scheme, 1))
		_, err := runner.Remove(t.Context(), m)
		if err == nil || strings.Contains(err.Error(), password) {
			t.Errorf("with the scheme %q: got %v", scheme, err)
		}
	}
	cloud.SetFault(nil)
	if _, err := runner.Remove(t.Context(), m); err != nil {
		t.Error(err)
	}
}

func TestOverSSH(t *testing.T) {
	t.Parallel()
	cloud, runner, m := setup(t, "")
	addresses, log, err := runner.Create(t.Context(), m)
	if err != nil {
		t.Fatal(err, log)
	}
	noSecrets(t, log)
	if diff := cmp.Diff([]nodedriver.Address{{Address: "127.0.0.1"}}, addresses); diff != "" {
		t.Error(diff)
	}
	i := cloud.Instances()["pool-1"]
	if i.Size != 3 || i.Image != "debian" || !i.Private || !i.Started || len(i.Tags) != 2 || i.UserData != "" {
		t.Errorf("got %+v", i)
	}
	want := []string{
		"umask 077 && cat >/tmp/drover-bootstrap.sh\nhostname pool-1-host && echo pool-1-host >/etc/hostname\n" + string(m.Script),
		"sh /tmp/drover-bootstrap.sh </dev/null; code=$?; rm -f /tmp/drover-bootstrap.sh; exit $code\n",
	}
	if diff := cmp.Diff(want, i.Scripts); diff != "" {
		t.Error(diff)
	}
	if len(m.State.Files["id_rsa"]) == 0 {
		t.Error("the SSH key was not saved")
	}

	// The credential is rotated; the machine is removed with the new one.
	cloud.SetToken("rotated-cloud-token")
	log, err = runner.Remove(t.Context(), m)
	noSecrets(t, log, err)
	if err == nil || !strings.Contains(err.Error(), "unauthorized") {
		t.Errorf("removed with the old credential: %v", err)
	}
	m.Credential["token"] = "rotated-cloud-token"
	if _, err = runner.Remove(t.Context(), m); err != nil || len(cloud.Instances()) > 0 {
		t.Errorf("got %v, left %v", err, cloud.Instances())
	}
	// What the cloud does not know is removed.
	if log, err = runner.Remove(t.Context(), m); err != nil {
		t.Error(err)
	}
	noSecrets(t, log)
}

func TestByUserData(t *testing.T) {
	t.Parallel()
	cloud, runner, m := setup(t, "userdata")
	m.Spec["userdata"] = "#cloud-config\npackages: [jq]\nruncmd: [date]\n"
	if _, log, err := runner.Create(t.Context(), m); err != nil {
		t.Fatal(err, log)
	}
	i := cloud.Instances()["pool-1"]
	for _, part := range []string{"#cloud-config\n", "hostname: pool-1-host", "- jq", "- date\n- sh /usr/local/custom_script/install.sh", "encoding: gzip+b64"} {
		if !strings.Contains(i.UserData, part) {
			t.Errorf("%q is missing in %s", part, i.UserData)
		}
	}
	if len(i.Scripts) > 0 {
		t.Errorf("bootstrapped over SSH as well: %v", i.Scripts)
	}
}

// An instance that was made before something failed is removed, whatever failed.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	cloud, runner, m := setup(t, "")
	cloud.SetFault(func(_, path string) error {
		if strings.HasSuffix(path, "/start") {
			return errors.New("quota exceeded for " + token)
		}
		return nil
	})
	_, log, err := runner.Create(t.Context(), m)
	if err == nil || !strings.Contains(err.Error(), "quota exceeded") {
		t.Fatalf("got %v", err)
	}
	noSecrets(t, err, log)
	cloud.SetFault(nil)
	if _, err := runner.Remove(t.Context(), m); err != nil || len(cloud.Instances()) > 0 {
		t.Errorf("got %v, left %v", err, cloud.Instances())
	}
}

// TestSavedDuringCreation: what the driver knows of a machine is saved while it is still creating it.
func TestSavedDuringCreation(t *testing.T) {
	t.Parallel()
	cloud, runner, m := setup(t, "")
	known := make(chan struct{})
	var once sync.Once
	save := m.Save
	m.Save = func(ctx context.Context, s *nodedriver.State) error {
		if bytes.Contains(s.Config(), []byte(`"ID":"i-1"`)) {
			once.Do(func() { close(known) })
		}
		return save(ctx, s)
	}
	cloud.SetFault(func(_, path string) error {
		if !strings.HasSuffix(path, "/start") {
			return nil
		}
		select {
		case <-known:
			return nil
		case <-time.After(8 * time.Second):
			return errors.New("nothing was saved")
		}
	})
	if _, log, err := runner.Create(t.Context(), m); err != nil {
		t.Fatal(err, log)
	}
}

// TestDriverDies: a driver that ends while it creates a machine leaves nothing that is not removed later.
func TestDriverDies(t *testing.T) {
	t.Parallel()
	cloud, runner, m := setup(t, "die")
	_, log, err := runner.Create(t.Context(), m)
	if err == nil || !strings.Contains(err.Error(), "Create: the program ended") ||
		strings.Contains(err.Error(), "GetConfigRaw") || cloud.Made() != 1 {
		t.Fatalf("%d instances, %v: %s", cloud.Made(), err, log)
	}
	noSecrets(t, err, log)
	if _, err := runner.Remove(t.Context(), m); err != nil || len(cloud.Instances()) > 0 {
		t.Errorf("got %v, left %v", err, cloud.Instances())
	}
}

func TestInvalidFields(t *testing.T) {
	t.Parallel()
	_, runner, m := setup(t, "userdata")
	for field, tt := range map[string]struct {
		value any
		want  string
	}{
		"size": {"three", "spec.size must be of the type of the flag lab-size, which is int"}, "tags": {3, "spec.tags"},
		"userdata": {"/etc/shadow", "not the path of a file"},
	} {
		spec := m.Spec
		m.Spec = map[string]any{"url": "x", field: tt.value}
		_, _, err := runner.Create(t.Context(), m)
		var invalid *nodedriver.InvalidError
		if !errors.As(err, &invalid) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v", field, err)
		}
		m.Spec = spec
	}
}

// A cloud that refuses a machine is not all that is said where the credential has a key of which the driver makes nothing.
func TestMisspelledCredential(t *testing.T) {
	t.Parallel()
	cloud, runner, m := setup(t, "")
	m.Credential = nodedriver.Credential("lab", map[string][]byte{"labcredentialConfig-tokn": []byte(token),
		"labcredentialConfig-sshUser": []byte("admin")})
	_, log, err := runner.Create(t.Context(), m)
	want := `unauthorized; driver lab has no field for what the cloud credential calls "tokn"`
	if err == nil || !strings.Contains(strings.ReplaceAll(err.Error(), "\n", ""), want) || cloud.Made() != 0 {
		t.Errorf("got %v", err)
	}
	noSecrets(t, log, err)
}

// newKey makes a private key for SSH, as ssh-keygen writes it.
func newKey(t *testing.T) string {
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(private, "")
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(block))
}

// TestFiles: a driver finds the content of a field in the file that its flag names, and the public key beside it, when it creates a machine
// and when it removes it. The content may come from the credential. It is no text for users.
func TestFiles(t *testing.T) {
	t.Parallel()
	key := newKey(t)
	signer, err := ssh.ParsePrivateKey([]byte(key))
	if err != nil {
		t.Fatal(err)
	}
	key = strings.TrimSpace(key)
	for name, inCredential := range map[string]bool{"of the machine": false, "of the credential": true} {
		cloud, runner, m := setup(t, "files")
		m.Files = schema.Files{"keyFile": "keyContents"}
		if inCredential {
			m.Credential["keyContents"] = key
		} else {
			m.Spec["keyContents"] = key
		}
		if _, log, err := runner.Create(t.Context(), m); err != nil {
			t.Fatal(name, err, log)
		}
		if got, want := cloud.Instances()["pool-1"].Image, strings.TrimSpace(string(ssh.MarshalAuthorizedKey(signer.PublicKey()))); got != want {
			t.Errorf("%s: the public key is %q, want %q", name, got, want)
		}
		// Since then the NodeDriver, the machine and the credential have changed.
		m.Files = nil
		delete(m.Spec, "keyContents")
		delete(m.Credential, "keyContents")
		log, err := runner.Remove(t.Context(), m)
		if err != nil || len(cloud.Instances()) > 0 {
			t.Errorf("%s: %v, left %v", name, err, cloud.Instances())
		}
		if !strings.Contains(log, "removing pool-1 with the key [redacted]") {
			t.Errorf("%s: the log is %q", name, log)
		}
		noSecrets(t, log)
	}

	// A field may have the name of the flag. The credential is another one when the machine is removed, and still has the content.
	for name, files := range map[string]schema.Files{"annotated": {"keyFile": "keyFile"}, "not annotated any more": nil} {
		cloud, runner, m := setup(t, "files")
		m.Files = schema.Files{"keyFile": "keyFile"}
		m.Credential["keyFile"] = key
		if _, log, err := runner.Create(t.Context(), m); err != nil {
			t.Fatal(name, err, log)
		}
		m.Files = files
		cloud.SetToken("rotated-cloud-token")
		m.Credential["token"] = "rotated-cloud-token"
		if log, err := runner.Remove(t.Context(), m); err != nil || len(cloud.Instances()) > 0 {
			t.Errorf("%s: %v, left %v: %s", name, err, cloud.Instances(), log)
		}
	}

	// The flag's own default is left where there is no content.
	_, runner, m := setup(t, "files")
	m.Files = schema.Files{"keyFile": "keyContents"}
	if _, _, err := runner.Create(t.Context(), m); err == nil || !strings.Contains(err.Error(), "/none.pub") {
		t.Errorf("got %v", err)
	}
}

// A driver that names a file of the hub as the machine's key gets nothing of it.
func TestKeyPath(t *testing.T) {
	t.Parallel()
	_, runner, m := setup(t, "keypath")
	_, _, err := runner.Create(t.Context(), m)
	if err == nil || !strings.Contains(err.Error(), "reading etc/shadow in the sandbox") {
		t.Errorf("got %v", err)
	}
}

func TestState(t *testing.T) {
	s := &nodedriver.State{Name: "a", Files: map[string][]byte{"config.json": []byte(`{"Driver":{"x":1}}`), "id_rsa": []byte("k")}}
	raw, err := s.Encode()
	if err != nil {
		t.Fatal(err)
	}
	got, err := nodedriver.Decode("a", raw)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(s, got); diff != "" || string(got.Config()) != `{"x":1}` {
		t.Errorf("%s %s", diff, got.Config())
	}
	if _, err := nodedriver.Decode("a", []byte("nonsense")); err == nil {
		t.Error("nonsense was decoded")
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte("\x1f\x8b"))
	f.Fuzz(func(_ *testing.T, raw []byte) {
		_, _ = nodedriver.Decode("a", raw) // it must end, and not panic
	})
}
