package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
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

// TestCheckKubeconfig: a user on the machine of the package's hub learns that root may use it, instead of a file that never was.
func TestCheckKubeconfig(t *testing.T) {
	system, defaultDir := filepath.Join(t.TempDir(), "drover"), t.TempDir()
	rootDir := filepath.Join(system, "hub")
	c := &connection{dataDir: defaultDir}
	want := "there is no hub's kubeconfig at " + c.path()
	if err := c.checkKubeconfig(defaultDir, rootDir); err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("without a hub: got %v", err)
	}
	if err := os.Mkdir(system, 0o700); err != nil {
		t.Fatal(err)
	}
	want = "reading the hub's kubeconfig " + rootDir + "/admin.kubeconfig: permission denied; run this command as root"
	if err := c.checkKubeconfig(defaultDir, rootDir); err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("with a hub of the package: got %v, want %s", err, want)
	}
	c.dataDir = "/data"
	if err := c.checkKubeconfig(defaultDir, rootDir); err == nil || !strings.HasPrefix(err.Error(), "there is no hub's kubeconfig at /data/") {
		t.Errorf("with another --data-dir: got %v", err)
	}
}

// TestExplain: errors of the API say what to do.
func TestExplain(t *testing.T) {
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	kind := schema.GroupKind{Group: "provisioning.cattle.io", Kind: "Cluster"}
	for _, tt := range []struct {
		err  error
		want string
	}{
		{refused, "start the hub"},
		{&meta.NoKindMatchError{GroupKind: kind, SearchedVersions: []string{"v1"}}, "this is not the API of a hub, or the hub has not started"},
		{apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "a", nil), "a right is missing"},
	} {
		err := fmt.Errorf("reading Cluster a/b: %w", tt.err)
		if got := explain(err); !strings.Contains(got.Error(), tt.want) || !errors.Is(got, tt.err) {
			t.Errorf("got %q, want %q", got, tt.want)
		}
	}
	ending := apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "a", errors.New("because it is being terminated"))
	ending.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	if got := explain(fmt.Errorf("creating: %w", ending)); strings.Contains(got.Error(), "a right is missing") || !errors.Is(got, ending) {
		t.Errorf("in a namespace that is being deleted: got %v", got)
	}
	if got := explain(fs.ErrClosed); got.Error() != fs.ErrClosed.Error() {
		t.Errorf("got %v", got)
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
