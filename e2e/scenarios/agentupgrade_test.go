//go:build e2e

package scenarios

import (
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/e2e/lab"
	"github.com/drover-dev/drover/e2e/scenarios/suite"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
)

// TestAgentUpgrade has the hub upgrade the agent of a machine of a running cluster from another build to that which the hub hands out. The
// distribution goes on running, and the next change is applied by the new agent.
func TestAgentUpgrade(t *testing.T) {
	ctx := t.Context()
	key := client.ObjectKey{Namespace: "fleet-default", Name: "agentupgrade"}
	host := &rancherHost{Host: shared.NewHost(t, "agentup1"), unit: "k3s"}
	t.Cleanup(func() { shared.DeleteCluster(t, key) })
	suite.Step(t, "a cluster is Ready", func(t *testing.T) {
		suite.Must(t, shared.ApplyCluster(ctx, shared.Hub, key))
		command, _, err := shared.TokenCommand(ctx, shared.Hub, key, lab.AllRoles...)
		suite.Must(t, err)
		suite.Must(t, shared.Register(ctx, host.Host, command))
		suite.Must(t, shared.WaitClusterReady(ctx, shared.Hub, key, 10*time.Minute))
	})
	current := host.ask(t, "system-agent --version")
	suite.Step(t, "its machine has an agent of another version", func(t *testing.T) {
		putAgent(t, buildAgent(t, "v0.0.1"), host.Path(installedAgent))
		host.ask(t, "systemctl reload rancher-system-agent")
		host.runs(t, "system-agent version v0.0.1")
	})
	suite.Step(t, "the hub upgrades the agent when that is requested, and the distribution goes on", func(t *testing.T) {
		host.keepsRunning(t, func() {
			changeCluster(t, key, func(c *provisioningv1.Cluster) { c.Spec.RedeploySystemAgentGeneration = 1 })
			suite.Must(t, shared.WaitAgentsUpgraded(ctx, shared.Hub, key, 3*time.Minute))
		})
		host.runs(t, current)
		if left := host.ask(t, "find /etc/systemd/system -name '*rollback*'"); left != "" {
			t.Errorf("left: %s", left)
		}
	})
	suite.Step(t, "the new agent applies a change", func(t *testing.T) {
		changeCluster(t, key, func(c *provisioningv1.Cluster) {
			c.Spec.RKEConfig.MachineGlobalConfig.Data = map[string]any{"kubelet-arg": []any{"max-pods=93"}}
		})
		suite.Must(t, shared.WaitFor(ctx, "the configuration is on the host", 5*time.Minute, func(context.Context) (bool, string) {
			got := host.ask(t, "cat /etc/rancher/k3s/config.yaml.d/50-rancher.yaml")
			return strings.Contains(got, "max-pods=93"), got
		}))
		suite.Must(t, shared.WaitClusterReady(ctx, shared.Hub, key, 5*time.Minute))
	})
}

// installedAgent is where the install script puts the agent.
const installedAgent = "/usr/local/bin/system-agent"

// buildAgent builds the agent of this checkout with another version, and returns its path.
func buildAgent(t *testing.T, version string, flags ...string) string {
	t.Helper()
	built := filepath.Join(t.TempDir(), "system-agent")
	args := append([]string{"build", "-trimpath", "-ldflags", "-s -w -X github.com/drover-dev/drover/agent/cli.Version=" + version}, flags...)
	cmd := exec.CommandContext(t.Context(), "go", append(args, "-o", built, ".")...)
	cmd.Dir = "../../agent"
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building the agent: %v\n%s", err, out)
	}
	return built
}

// putAgent copies an agent to a path, which it replaces by a rename.
func putAgent(t *testing.T, built, path string) {
	t.Helper()
	in, err := os.Open(built)
	suite.Must(t, err)
	defer in.Close()
	out, err := os.OpenFile(path+".new", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o755)
	suite.Must(t, err)
	_, err = io.Copy(out, in)
	suite.Must(t, err)
	suite.Must(t, out.Close())
	suite.Must(t, os.Rename(path+".new", path))
}
