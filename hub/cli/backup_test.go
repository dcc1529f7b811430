package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestSaveBoth: where the one file cannot be written, the other one is all the same.
func TestSaveBoth(t *testing.T) {
	var stdout, stderr bytes.Buffer
	code := Main([]string{
		"backup", "save", "--data-dir", t.TempDir(),
		"--snapshot", filepath.Join(t.TempDir(), "hub.db"), "--keys", filepath.Join(t.TempDir(), "keys.tar"),
	}, &stdout, &stderr)
	if code != 1 || strings.Count(stderr.String(), "is not the data directory of a hub") != 2 || strings.Count(stderr.String(), "\n") != 1 {
		t.Errorf("got %d, %s%s", code, &stdout, &stderr)
	}
}

// TestSaveIntoOneDirectory: snapshot and keys are kept apart, whatever the directory is called.
func TestSaveIntoOneDirectory(t *testing.T) {
	dir, link := t.TempDir(), filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	for _, keys := range []string{"keys.tar", filepath.Join(dir, "keys.tar"), filepath.Join(link, "keys.tar")} {
		var stdout, stderr bytes.Buffer
		code := Main([]string{"backup", "save", "--data-dir", t.TempDir(), "--snapshot", "hub.db", "--keys", keys}, &stdout, &stderr)
		if code == 0 || !strings.Contains(stderr.String(), "is in the directory of --snapshot") {
			t.Errorf("%s: got %d, %s%s", keys, code, &stdout, &stderr)
		}
	}
}

// TestRestored: what root has restored belongs to root, and the hub of the package could not read it.
func TestRestored(t *testing.T) {
	for name, test := range map[string]struct {
		options backupOptions
		root    bool
		want    string
	}{
		"package":               {backupOptions{dataDir: "/var/lib/drover/hub"}, true, "chown -R drover: /var/lib/drover\n"},
		"another directory":     {backupOptions{dataDir: "/srv/hub"}, true, "chown -R drover: /srv/hub\n"},
		"keys somewhere else":   {backupOptions{dataDir: "/srv/hub", encryptionKeyDir: "/keys"}, true, "chown -R drover: /srv/hub /keys\n"},
		"not root, so no chown": {backupOptions{dataDir: "/srv/hub"}, false, "start it with: hub serve --data-dir /srv/hub\n"},
		"keys somewhere else, not root": {backupOptions{dataDir: "/srv/hub", encryptionKeyDir: "/keys"}, false,
			"start it with: hub serve --data-dir /srv/hub --encryption-key-dir /keys\n"},
	} {
		got := test.options.restored(test.root)
		if !strings.HasSuffix(got, test.want) || strings.Contains(got, "chown") != test.root {
			t.Errorf("%s: got %q, want %q at its end", name, got, test.want)
		}
	}
	restore, _, err := newRoot().Find([]string{"backup", "restore"})
	if err != nil || !strings.Contains(restore.Long, "differs") {
		t.Errorf("the help does not say which files are refused: %v", err)
	}
}
