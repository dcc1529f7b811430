package downloads

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/drover-dev/drover/hub/identity/tokens"
	"github.com/drover-dev/drover/hub/server/settings"
)

func TestAgentChecksums(t *testing.T) {
	hub := settings.Settings{ServerURL: "https://hub.example"}
	for name, dir := range map[string]string{"no directory": "", "missing": filepath.Join(t.TempDir(), "missing"), "empty": t.TempDir()} {
		files, err := New(dir, hub)
		if err != nil {
			t.Fatal(err)
		}
		if sums, err := files.AgentChecksums(); err != nil || len(sums) != 0 {
			t.Errorf("%s: got %v, %v", name, sums, err)
		}
	}
	dir := t.TempDir()
	files, err := New(dir, hub)
	if err != nil {
		t.Fatal(err)
	}
	for _, content := range []string{"one", "another"} {
		if err := os.WriteFile(filepath.Join(dir, "system-agent-arm64"), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		sums, err := files.AgentChecksums()
		if diff := cmp.Diff(map[string]string{"arm64": tokens.Hash(content)}, sums); err != nil || diff != "" {
			t.Errorf("%v, %s", err, diff)
		}
	}
}
