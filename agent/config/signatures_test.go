package config

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

const key = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="

func TestPlanSignatures(t *testing.T) {
	const base = "remoteEnabled: true\nconnectionInfoFile: /a/b/c.json\n"
	for text, want := range map[string]PlanSignatures{
		"": "", "planSignatures: off\n": SignaturesOff, "planSignatures: \"off\"\n": SignaturesOff, "planSignatures: warn\n": SignaturesWarn,
		"planSignatures: enforce\n": SignaturesEnforce,
	} {
		if c, err := Load(write(t, "config.yaml", base+text, 0)); err != nil || c.PlanSignatures != want {
			t.Errorf("%q: got %q, %v", text, c.PlanSignatures, err)
		}
	}
	for _, text := range []string{"enforced", "true", "3", "[]"} {
		_, err := Load(write(t, "config.yaml", base+"planSignatures: "+text+"\n", 0))
		checkError(t, err, "must be off, warn or enforce")
	}
}

func TestConnectionEncode(t *testing.T) {
	path := write(t, "c.json", `{"kubeConfig":"k","namespace":"n","secretName":"s","planSigningKey":"`+key+`","later":{"a":[1]}} trailing`, 0)
	c, raw, err := ReadConnection(path)
	if err != nil {
		t.Fatal(err)
	}
	if pinned, err := c.SigningKey(); err != nil || len(pinned) != 32 || pinned[31] != 31 {
		t.Errorf("key is %v, %v", pinned, err)
	}
	c.KubeConfig = "k2"
	raw, err = c.Encode(raw)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.TrimSpace(string(raw)); got != `{"kubeConfig":"k2","later":{"a":[1]},"namespace":"n","planSigningKey":"`+key+
		`","secretName":"s"}` {
		t.Errorf("got %s", got)
	}
	for _, bad := range []string{"AAEC", "no base64"} {
		raw, err := json.Marshal(Connection{KubeConfig: "k", Namespace: "n", SecretName: "s", PlanSigningKey: bad})
		if err != nil {
			t.Fatal(err)
		}
		_, err = LoadConnection(write(t, "c.json", string(raw), 0))
		checkError(t, err, "planSigningKey: must be an ed25519 public key")
	}
}

// TestIrregularConnectionFiles shows that S8 cannot happen here: what is checked is the open file, whatever its name leads to.
func TestIrregularConnectionFiles(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe.json")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { _, err := LoadConnection(pipe); done <- err }()
	select {
	case err := <-done:
		checkError(t, err, "not a regular file")
	case <-time.After(time.Minute):
		t.Fatal("opening a named pipe blocks")
	}
	// A link is followed, and what it leads to has to follow the rules.
	target := write(t, "open.json", `{"kubeConfig":"k","namespace":"n","secretName":"s"}`, 0o640)
	link := filepath.Join(dir, "link.json")
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	_, err := LoadConnection(link)
	checkError(t, err, "mode must be 0600, got 0640")
}
