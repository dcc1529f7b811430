package cli

import (
	"bytes"
	"strings"
	"testing"
)

// Errors name the missing flags.
func TestAuthWebhookArguments(t *testing.T) {
	t.Setenv(envCluster, "")
	for _, tc := range []struct {
		args []string
		want string
	}{
		{nil, "--cluster is required"},
		{[]string{"--cluster", "c-m-a"}, "--keys is required"},
		{[]string{"--cluster", "c-m-a", "--keys", "k", "--allow-group", "ops"}, `--allow-group "ops": must be system:masters`},
		{[]string{"--cluster", "c-m-a", "--keys", "k", "--listen", "nowhere"}, "listening on nowhere"},
		{[]string{"more"}, `unknown command "more"`},
	} {
		var stdout, stderr bytes.Buffer
		if code := Main(append([]string{"cluster", "auth-webhook"}, tc.args...), &stdout, &stderr); code == 0 ||
			!strings.Contains(stderr.String(), tc.want) {
			t.Errorf("%v: got %d %s", tc.args, code, &stderr)
		}
	}
}
