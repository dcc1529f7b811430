package server

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiserver "k8s.io/apiserver/pkg/apis/apiserver/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/drover-dev/drover/e2e/distro/internal/supervisor"
)

func TestEncryptionConfiguration(t *testing.T) {
	key := func(provider, name string) encryptionKey {
		return encryptionKey{provider, apiserver.Key{Name: name, Secret: "c2VjcmV0"}}
	}
	for _, e := range []encryption{
		{enabled: true, keys: []encryptionKey{key(aescbc, "a")}},
		{enabled: false, keys: []encryptionKey{key(aescbc, "a"), key(aescbc, "b")}},
		{enabled: true, keys: []encryptionKey{key(secretbox, "s"), key(aescbc, "a"), key(aescbc, "b")}},
	} {
		raw, err := e.encode()
		if err != nil {
			t.Fatal(err)
		}
		back, err := decodeEncryption(raw)
		if diff := cmp.Diff(e, back, cmp.AllowUnexported(encryption{}, encryptionKey{})); diff != "" || err != nil {
			t.Errorf("%v %s", err, diff)
		}
		if first := strings.Index(string(raw), "identity") < strings.Index(string(raw), "keys"); first == e.enabled {
			t.Errorf("%s", raw)
		}
	}
	for _, raw := range []string{"", "{}", `{"resources":[{"providers":[{"identity":{}}]}]}`, `{"resources":[{"providers":[{"kms":{"name":"x"}}]}]}`} {
		if _, err := decodeEncryption([]byte(raw)); err == nil {
			t.Errorf("%q was taken", raw)
		}
	}
}

func TestLoadedKeys(t *testing.T) {
	metrics := "# HELP x\napiserver_encryption_config_controller_last_config_info{apiserver_id_hash=\"sha256:1\",hash=\"sha256:abc\"} 1\n"
	if !loaded(metrics, "abc") || loaded(metrics, "abd") || loaded("other{hash=\"sha256:abc\"} 1\n", "abc") {
		t.Error("the metrics were not understood")
	}
}

// waitIdle waits until the change of keys that runs behind a request has ended.
func (s *server) waitIdle(t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !s.encryptionMu.TryLock(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("a change of keys does not end")
		}
	}
	s.encryptionMu.Unlock()
}

func TestEncryptionStages(t *testing.T) {
	if !inNetwork(t) {
		return
	}
	ctx := t.Context()
	s := bringUp(t, load(t, t.TempDir(), "--secrets-encryption"))
	controlPlane := func(name string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"node-role.kubernetes.io/control-plane": "true"}}}
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "s"}}
	client := fake.NewClientset(controlPlane("n1"), controlPlane("n2"), secret)
	s.admin = client
	ask := func(stage string, more ...func(*supervisor.EncryptionRequest)) error {
		req := supervisor.EncryptionRequest{Stage: &stage}
		for _, f := range more {
			f(&req)
		}
		err := s.changeEncryption(ctx, req)
		s.waitIdle(t)
		return err
	}
	other := func() { // n2 starts again and takes what the cluster has
		n1, err := client.CoreV1().Nodes().Get(ctx, "n1", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		n2 := controlPlane("n2")
		n2.Annotations = n1.Annotations
		if _, err := client.CoreV1().Nodes().Update(ctx, n2, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	status := func() supervisor.EncryptionState {
		state, err := s.encryptionStatus(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return state
	}
	if status().Enable != nil || !errors.Is(ask(supervisor.StagePrepare), errNeverEncrypted) {
		t.Error("there are keys before there are any")
	}
	if err := s.ensureEncryption(ctx); err != nil {
		t.Fatal(err)
	}
	if err := s.tellSavedEncryption(ctx); err != nil {
		t.Fatal(err)
	}
	other()
	first := status()
	if !*first.Enable || first.Stage != stageStart || !first.HashMatch || !strings.HasPrefix(first.ActiveKey, "AES-CBC aescbckey-") {
		t.Errorf("%+v", first)
	}
	if err := ask(supervisor.StageRotate); err == nil || !strings.Contains(err.Error(), "incorrect stage: start found on node n1") {
		t.Errorf("rotating first: %v", err)
	}
	if err := ask(supervisor.StagePrepare); err != nil {
		t.Fatal(err)
	}
	got := status()
	if got.Stage != stagePrepare || got.HashError != "hash does not match between n1 and n2" || got.ActiveKey != first.ActiveKey ||
		len(got.InactiveKeys) != 1 {
		t.Errorf("%+v", got)
	}
	if err := ask(supervisor.StageRotate); err == nil || !strings.Contains(err.Error(), "hash does not match") {
		t.Errorf("rotating before n2 started again: %v", err)
	}
	other()
	if err := ask(supervisor.StageRotate); err != nil {
		t.Fatal(err)
	}
	other()
	if got = status(); got.Stage != stageRotate || len(got.InactiveKeys) != 1 || got.InactiveKeys[0] != first.ActiveKey {
		t.Errorf("%+v", got)
	}
	client.ClearActions()
	if err := ask(supervisor.StageReencrypt); err != nil {
		t.Fatal(err)
	}
	wrote := 0
	for _, a := range client.Actions() {
		if a.Matches("update", "secrets") {
			wrote++
		}
	}
	if got = status(); got.Stage != stageFinished || len(got.InactiveKeys) != 0 || wrote != 1 {
		t.Errorf("%+v, %d Secrets written", got, wrote)
	}
	other()

	if err := s.changeEncryption(ctx, supervisor.EncryptionRequest{Enable: new(bool)}); err != nil {
		t.Fatal(err)
	}
	if got = status(); *got.Enable || got.ActiveKey != "" || len(got.InactiveKeys) != 1 {
		t.Errorf("%+v", got)
	}
	if err := ask(supervisor.StageReencrypt); err == nil {
		t.Error("writing Secrets was not due")
	}
	force := func(r *supervisor.EncryptionRequest) { r.Force, r.Skip = true, true }
	if err := ask(supervisor.StageReencrypt, force); err != nil {
		t.Fatal(err)
	}
	if got = status(); got.Stage != stageFinished || len(got.InactiveKeys) != 1 {
		t.Errorf("%+v", got)
	}

	// The keys are in etcd, so that they come back with it.
	raw, err := os.ReadFile(s.encryptionFile())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(s.encryptionFile()); err != nil {
		t.Fatal(err)
	}
	s.set.Stop()
	again := newServer(discard, s.Config)
	for _, phase := range []func(context.Context) error{again.readTokens, again.readBootstrap} {
		if err := phase(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if back, err := os.ReadFile(s.encryptionFile()); err != nil || string(back) != string(raw) {
		t.Errorf("the keys did not come back: %v", err)
	}
}
