package cli

import (
	"io/fs"
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
