package cli

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// TestExplainKubeconfig: only a file that does not exist is called missing.
func TestExplainKubeconfig(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want string
	}{
		{nil, ""},
		{syscall.ENOENT, "there is no hub's kubeconfig at /data/k; name another --data-dir or a --kubeconfig"},
		{syscall.EACCES, "reading the hub's kubeconfig /data/k: permission denied; run this command as root, or name a --kubeconfig"},
		{syscall.EIO, "reading the hub's kubeconfig: open /data/k: input/output error"},
	} {
		err := tt.err
		if err != nil {
			err = &fs.PathError{Op: "open", Path: "/data/k", Err: err}
		}
		got := ""
		if err := explainKubeconfig("/data/k", err); err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("%v: got %q, want %q", tt.err, got, tt.want)
		}
	}
}

// TestNoClientRateLimit: no command waits for a rate limit of the client's own.
func TestNoClientRateLimit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kubeconfig")
	raw := `{"apiVersion": "v1", "kind": "Config", "current-context": "a",
		"clusters": [{"name": "a", "cluster": {"server": "https://127.0.0.1:1"}}],
		"contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}], "users": [{"name": "a", "user": {"token": "t"}}]}`
	if err := os.WriteFile(path, []byte(raw), 0o600); err != nil {
		t.Fatal(err)
	}
	config, err := (&connection{kubeconfig: path}).restConfig()
	if err != nil || config.QPS >= 0 || config.RateLimiter != nil {
		t.Errorf("got %+v, %v", config, err)
	}
}
