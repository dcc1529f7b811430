package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestClusterSaysWhatIsMissing(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(kubeconfig,
		[]byte(`{"current-context":"a","clusters":[{"name":"a","cluster":{"server":"https://127.0.0.1:1"}}],"contexts":[{"name":"a","context":{"cluster":"a"}}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name, server string
		args         []string
		want         string
	}{
		{name: "no cluster", want: "system-agent: not running in a pod ("},
		{name: "no such kubeconfig", args: []string{"--kubeconfig", "/does/not/exist"}, want: "system-agent: --kubeconfig: "},
		{name: "a server of the environment", server: "hub", args: []string{"--kubeconfig", kubeconfig},
			want: `system-agent: --server (CATTLE_SERVER): must be such as https://hub.example.com, got "hub"`},
		{name: "a port that is taken", args: []string{"--kubeconfig", kubeconfig, "--health-address", "192.0.2.1:1"},
			want: "system-agent: --health-address: "},
		{name: "a word too much", args: []string{"now"}, want: "system-agent: "},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Setenv(envServer, test.server)
			code, _, stderr := run1(append([]string{"cluster"}, test.args...)...)
			if code == 0 || !strings.HasPrefix(stderr, test.want) {
				t.Errorf("exit code %d: %s\nwant %q", code, stderr, test.want)
			}
		})
	}
}
