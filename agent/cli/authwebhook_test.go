package cli

import (
	"bytes"
	"strings"
	"testing"
)

// A DaemonSet that was written by hand is told what it lacks.
func TestAuthWebhookArguments(t *testing.T) {
	t.Setenv(envCluster, "")
	for _, tc := range []struct {
		args []string
		want string
	}{
		{nil, "--cluster is missing"},
		{[]string{"--cluster", "c-m-a"}, "--keys is missing"},
		{[]string{"--cluster", "c-m-a", "--keys", "k", "--allow-group", "ops"}, `--allow-group "ops": only system:masters may be allowed`},
		{[]string{"--cluster", "c-m-a", "--keys", "k", "--listen", "nowhere"}, "listening on nowhere"},
		{[]string{"more"}, `unknown command "more"`},
	} {
		var stdout, stderr bytes.Buffer
		if code := Main(append([]string{"cluster", "auth-webhook"}, tc.args...), &stdout, &stderr); code == 0 || !strings.Contains(stderr.String(), tc.want) {
			t.Errorf("%v: got %d %s", tc.args, code, &stderr)
		}
	}
}
