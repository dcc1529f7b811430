package downloads

import (
	"net/http"
	"net/http/httptest"
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

func TestMissing(t *testing.T) {
	dir := t.TempDir()
	if got := Missing(filepath.Join(dir, "none")); len(got) != len(architectures) {
		t.Errorf("of a directory that does not exist: got %v", got)
	}
	if err := os.WriteFile(filepath.Join(dir, "system-agent-amd64"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"system-agent-arm64"}, Missing(dir)); diff != "" {
		t.Error(diff)
	}
}

// TestResume: a client that continues a download gets the rest of the same file, or all of another one.
func TestResume(t *testing.T) {
	dir := t.TempDir()
	files, err := New(dir, settings.Settings{ServerURL: "https://hub.example"})
	if err != nil {
		t.Fatal(err)
	}
	for _, content := range []string{"the first agent", "another agent"} {
		if err := os.WriteFile(filepath.Join(dir, "system-agent-arm64"), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		for tag, want := range map[string]string{tokens.Hash(content): content[4:], tokens.Hash("previous"): content} {
			request := httptest.NewRequest(http.MethodGet, "/assets/system-agent-arm64", nil)
			request.SetPathValue("name", "system-agent-arm64")
			request.Header.Set("Range", "bytes=4-")
			request.Header.Set("If-Range", `"`+tag+`"`)
			answer := httptest.NewRecorder()
			err := files.ServeAsset(answer, request)
			if err != nil || answer.Body.String() != want || answer.Header().Get("ETag") != `"`+tokens.Hash(content)+`"` {
				t.Errorf("got %d %q, ETag %s, %v", answer.Code, answer.Body, answer.Header().Get("ETag"), err)
			}
		}
	}
}
