//go:build e2e

package scenarios

import (
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/google/go-cmp/cmp"

	"github.com/drover-dev/drover/e2e/hosts"
	"github.com/drover-dev/drover/e2e/lab"
	"github.com/drover-dev/drover/e2e/scenarios/suite"
	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
)

// TestBadRegistration runs commands that must not work: the script says why, ends with a failure, and leaves the machine
// as it was.
func TestBadRegistration(t *testing.T) {
	ctx := t.Context()
	key := client.ObjectKey{Namespace: "fleet-default", Name: "refused"}
	host := shared.NewHost(t, "refused1")
	suite.Must(t, shared.ApplyCluster(ctx, shared.Hub, key))
	defer shared.DeleteCluster(t, key)
	command, token, err := shared.TokenCommand(ctx, shared.Hub, key, lab.AllRoles...)
	suite.Must(t, err)
	workers, _, err := shared.TokenCommand(ctx, shared.Hub, key, "--worker")
	suite.Must(t, err)
	before := installed(t, host)

	for _, test := range []struct {
		name    string
		command func(t *testing.T) string
		says    string
	}{
		{"an unknown token", func(*testing.T) string { return strings.ReplaceAll(command, token, strings.Repeat("x", len(token))) }, "HTTP 401"},
		{"an expired token", func(t *testing.T) string { return strings.ReplaceAll(command, token, expiredToken(t, key)) }, "HTTP 401"},
		{"the command of a worker for a server", func(*testing.T) string { return workers + " --etcd --controlplane" }, "HTTP 403"},
		{"a CA checksum that does not match", func(*testing.T) string {
			return regexp.MustCompile(`--ca-checksum [0-9a-f]{64}`).ReplaceAllString(command, "--ca-checksum "+strings.Repeat("0", 64))
		}, "checksum"},
		{"no role", func(*testing.T) string {
			return strings.NewReplacer("--etcd", "", "--controlplane", "", "--worker", "").Replace(command)
		}, "role"},
	} {
		t.Run(test.name, func(t *testing.T) {
			bad := test.command(t)
			if bad == command {
				t.Fatalf("the command could not be spoiled: %s", strings.ReplaceAll(command, token, "{token}"))
			}
			began := time.Now()
			res, err := host.Script(ctx, bad+"\n", nil)
			suite.Must(t, err)
			if res.ExitCode == 0 {
				t.Errorf("the script ended with 0")
			}
			if !strings.Contains(res.Stdout+res.Stderr, test.says) {
				t.Errorf("the script does not say %q:\n%s%s", test.says, res.Stdout, res.Stderr)
			}
			t.Logf("after %.1f s: %s", time.Since(began).Seconds(), lastLine(res.Stderr))
			if diff := cmp.Diff(before, installed(t, host)); diff != "" {
				t.Errorf("the machine is not as it was:\n%s", diff)
			}
		})
	}
	machines := &clusterv1.MachineList{}
	suite.Must(t, shared.Hub.List(ctx, machines, client.InNamespace(key.Namespace),
		client.MatchingLabels{clusterv1.ClusterNameLabel: key.Name}))
	if len(machines.Items) != 0 {
		t.Errorf("%d Machines have come of it", len(machines.Items))
	}
}

// expiredToken makes the cluster have a token that has been replaced and whose grace period is over.
func expiredToken(t *testing.T, cluster client.ObjectKey) string {
	t.Helper()
	const old = "the-token-of-yesterday-the-token-of-yesterday-the-token"
	secret := &corev1.Secret{}
	suite.Must(t, shared.Hub.Get(t.Context(), tokenSecret(t, cluster), secret))
	patch := client.MergeFrom(secret.DeepCopy())
	secret.Data[managementv3.PreviousTokenKey] = []byte(old)
	secret.Data[managementv3.GracePeriodExpiresAtKey] = []byte(time.Now().Add(-time.Hour).UTC().Format(time.RFC3339))
	suite.Must(t, shared.Hub.Patch(t.Context(), secret, patch))
	return old
}

// installed lists what is in the places where an installation would leave something.
func installed(t *testing.T, host *hosts.Host) []string {
	t.Helper()
	var out []string
	for _, dir := range []string{"/usr/local", "/opt", "/etc/systemd/system", "/etc/rancher", "/etc/default", "/var/lib/rancher"} {
		root := host.Path(dir)
		_ = filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
			if err == nil {
				out = append(out, dir+strings.TrimPrefix(path, root))
			}
			return nil
		})
	}
	return out
}

func lastLine(s string) string {
	s = strings.TrimSpace(s)
	return s[strings.LastIndexByte(s, '\n')+1:]
}
