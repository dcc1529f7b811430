package install

import (
	"strings"
	"testing"
)

// TestCompactScript: the short script installs what the long one does, to the byte, and fits with its document into 16 KiB of user data.
func TestCompactScript(t *testing.T) {
	hub, m := newTestHub(t), newMachine(t)
	vars := []Var{{VarServer, hub.URL}, {VarCAChecksum, digest(string(hub.ca()))}, {"MY_VAR", "one\n# no comment"}}
	long, err := Script(vars...)
	if err != nil {
		t.Fatal(err)
	}
	short, err := CompactScript(vars...)
	if err != nil {
		t.Fatal(err)
	}
	if out, ok := m.run(long, nil, "--token", token, "--worker"); !ok {
		t.Fatalf("the script fails: %s", out)
	}
	if out, ok := m.run(short, nil, "--token", token, "--worker"); !ok || !strings.Contains(out, "nothing changed") {
		t.Errorf("the short script does something else: %s", out)
	}
	if !strings.Contains(string(short), "one\n# no comment") {
		t.Error("a value of a variable was changed")
	}
	if strings.Contains(string(short), "\n\tretry ") {
		t.Error("indents are left")
	}
	if strings.Contains(string(short), "Usage:") {
		t.Error("the help text is left")
	}
	if len(short) > len(long)*9/10 {
		t.Errorf("%d of %d bytes are left", len(short), len(long))
	}
}
