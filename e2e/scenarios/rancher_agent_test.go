//go:build e2e

package scenarios

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/e2e/hosts"
	"github.com/drover-dev/drover/e2e/lab"
	"github.com/drover-dev/drover/e2e/scenarios/suite"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// TestRancherAgent has Rancher's own agent, put onto hosts by Rancher's own script, make a cluster of this hub. Then this project's agent
// takes its place and gives it back, under a distribution that goes on running.
func TestRancherAgent(t *testing.T) {
	ctx := t.Context()
	key := client.ObjectKey{Namespace: "fleet-default", Name: "rancher"}
	rancher := serveRancher(t)
	server := &rancherHost{Host: shared.NewHost(t, "rancher1"), unit: "k3s"}
	worker := &rancherHost{Host: shared.NewHost(t, "rancher2"), unit: "k3s-agent"}
	machines := []*rancherHost{server, worker}

	suite.Step(t, "a Cluster has registration commands", func(t *testing.T) {
		suite.Must(t, shared.ApplyCluster(ctx, shared.Hub, key))
		var err error
		server.command, _, err = shared.TokenCommand(ctx, shared.Hub, key, lab.AllRoles...)
		suite.Must(t, err)
		worker.command, _, err = shared.TokenCommand(ctx, shared.Hub, key, "--worker")
		suite.Must(t, err)
	})
	t.Cleanup(func() { shared.DeleteCluster(t, key) })
	suite.Step(t, "Rancher's script registers a server and a worker with Rancher's agent", func(t *testing.T) {
		for _, m := range machines {
			m.install(t, rancher.command(t, m.command))
			m.runs(t, "rancher-system-agent version")
		}
	})
	suite.Step(t, "both Nodes and the Cluster are Ready", func(t *testing.T) {
		waitPods(t, key, 110)
		suite.Must(t, shared.WaitClusterReady(ctx, shared.Hub, key, 5*time.Minute))
	})
	suite.Step(t, "Rancher's agent applies a change", func(t *testing.T) { changePods(t, key, 77) })
	suite.Step(t, "this hub's script puts its agent in place of Rancher's, and the distribution goes on", func(t *testing.T) {
		// With the registration command, as somebody pastes it, and without a token, as the agent is upgraded.
		server.keepsRunning(t, func() { server.install(t, server.command) })
		worker.keepsRunning(t, func() { worker.install(t, "curl --insecure -fsSL "+shared.ServerURL()+"/system-agent-install.sh | sh") })
		for _, m := range machines {
			m.runs(t, "system-agent version")
		}
		suite.Must(t, shared.WaitClusterReady(ctx, shared.Hub, key, 5*time.Minute))
	})
	suite.Step(t, "this agent applies a change", func(t *testing.T) { changePods(t, key, 78) })
	suite.Step(t, "Rancher's script runs on machines that are known, puts its agent back, and the distribution goes on", func(t *testing.T) {
		for _, m := range machines {
			m.keepsRunning(t, func() { m.install(t, rancher.command(t, m.command)) })
			m.runs(t, "rancher-system-agent version")
		}
		suite.Must(t, shared.WaitClusterReady(ctx, shared.Hub, key, 5*time.Minute))
	})
	suite.Step(t, "Rancher's agent, which is back, applies a change", func(t *testing.T) { changePods(t, key, 79) })
	suite.Step(t, "a machine with a secret takes Rancher's script when an administrator runs the command in the hub's log",
		func(t *testing.T) {
			machine := worker.machine(t, key)
			approval := fmt.Sprintf("%s=%s", rkev1.RegisterFromAnnotation, worker.IP())
			shared.RunKubectl(t, shared.HubKubeconfig(), "annotate", "-n", key.Namespace, "machines.cluster.x-k8s.io", machine, approval)
			worker.install(t, worker.command)
			worker.runs(t, "system-agent version")
			worker.keepsRunning(t, func() {
				installed := make(chan error, 1)
				go func() { installed <- worker.tryInstall(t.Context(), rancher.command(t, worker.command)) }()
				var command []string
				suite.Must(t, shared.WaitFor(t.Context(), "the hub's log has a command for "+machine, 2*time.Minute,
					func(context.Context) (bool, string) {
						for _, found := range regexp.MustCompile(`command="kubectl ([^"]+ `+machine+` [^"]+)"`).FindAllStringSubmatch(hubLog(t), -1) {
							command = strings.Fields(found[1])
						}
						return command != nil, "it has none"
					}))
				// The script has put Rancher's agent in place and goes on trying. Whoever gives up still has this agent.
				worker.ask(t, "systemctl start rancher-system-agent")
				worker.runs(t, "system-agent version")
				shared.RunKubectl(t, shared.HubKubeconfig(), command...)
				suite.Must(t, <-installed)
			})
		})
	suite.Step(t, "Rancher's agent never exited, and asked for nothing that a machine does not get", func(t *testing.T) {
		for _, m := range machines {
			m.runs(t, "rancher-system-agent version")
		}
		for line := range strings.Lines(hubLog(t)) {
			if strings.Contains(line, "Request of a machine refused") {
				t.Error(line)
			}
		}
	})
}

// rancherHost is a host of the scenario.
type rancherHost struct {
	*hosts.Host
	// unit is the distribution's.
	unit string
	// command registers the host with this hub's agent.
	command string
}

// install runs a command that puts an agent in place.
func (h *rancherHost) install(t *testing.T, command string) {
	t.Helper()
	suite.Must(t, h.tryInstall(t.Context(), command))
}

// tryInstall gives a command a few minutes: Rancher's script tries for hours what it is refused.
func (h *rancherHost) tryInstall(ctx context.Context, command string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 6*time.Minute, errors.New("the script does not come to an end"))
	defer cancel()
	return shared.Register(ctx, h.Host, command)
}

// machine is the name of the host's Machine.
func (h *rancherHost) machine(t *testing.T, cluster client.ObjectKey) string {
	t.Helper()
	machines := &clusterv1.MachineList{}
	suite.Must(t, shared.Hub.List(t.Context(), machines, client.InNamespace(cluster.Namespace),
		client.MatchingLabels{clusterv1.ClusterNameLabel: cluster.Name}))
	for _, m := range machines.Items {
		if m.Status.NodeRef.Name == h.Name {
			return m.Name
		}
	}
	t.Fatalf("no Machine has the Node %s", h.Name)
	return ""
}

func hubLog(t *testing.T) string {
	t.Helper()
	log, err := os.ReadFile(filepath.Join(shared.LogDir(), "hub.log"))
	suite.Must(t, err)
	return string(log)
}

// ask runs a shell command on the host and returns what it prints.
func (h *rancherHost) ask(t *testing.T, command string) string {
	t.Helper()
	res, err := h.Exec(t.Context(), "sh", "-c", command)
	suite.Must(t, err)
	if res.ExitCode != 0 {
		t.Fatalf("%s on %s ends with %d: %s%s", command, h.Name, res.ExitCode, res.Stdout, res.Stderr)
	}
	return strings.TrimSpace(res.Stdout)
}

// runs waits until the service runs the agent that calls itself so, and fails if systemd had to start it again.
func (h *rancherHost) runs(t *testing.T, version string) {
	t.Helper()
	const show = `systemctl show --value -p %s rancher-system-agent`
	suite.Must(t, shared.WaitFor(t.Context(), h.Name+" runs "+version, 2*time.Minute, func(context.Context) (bool, string) {
		got := h.ask(t, "/proc/$("+fmt.Sprintf(show, "MainPID")+")/exe --version 2>&1 || true")
		return strings.HasPrefix(got, version), got
	}))
	if restarts := h.ask(t, fmt.Sprintf(show, "NRestarts")); restarts != "0" {
		t.Errorf("systemd has started the agent on %s again %s times:\n%s", h.Name, restarts,
			h.ask(t, "journalctl -u rancher-system-agent -n 40 -o cat"))
	}
}

// keepsRunning fails if the distribution was started again, by the change itself or by what an agent does when it starts.
func (h *rancherHost) keepsRunning(t *testing.T, change func()) {
	t.Helper()
	pid := func() string { return h.ask(t, "systemctl show --value -p MainPID "+h.unit) }
	before := pid()
	change()
	time.Sleep(10 * time.Second) // for what must not happen
	if after := pid(); before == "0" || after != before {
		t.Errorf("%s on %s had the PID %s and has %s now", h.unit, h.Name, before, after)
	}
}

// changePods changes the configuration of all Nodes, and waits until they have it.
func changePods(t *testing.T, key client.ObjectKey, pods int64) {
	t.Helper()
	changeCluster(t, key, func(c *provisioningv1.Cluster) {
		c.Spec.RKEConfig.MachineGlobalConfig.Data = map[string]any{"kubelet-arg": []any{fmt.Sprintf("max-pods=%d", pods)}}
	})
	waitPods(t, key, pods)
	suite.Must(t, shared.WaitClusterReady(t.Context(), shared.Hub, key, 5*time.Minute))
}

// waitPods waits until both Nodes are Ready and take as many Pods as given.
func waitPods(t *testing.T, key client.ObjectKey, pods int64) {
	t.Helper()
	what := fmt.Sprintf("two Nodes are Ready and take %d Pods", pods)
	suite.Must(t, shared.WaitFor(t.Context(), what, 10*time.Minute, func(ctx context.Context) (bool, string) {
		nodes := &corev1.NodeList{}
		c, _, err := shared.ClusterClient(ctx, shared.Hub, key)
		if err == nil {
			err = c.List(ctx, nodes)
		}
		if err != nil {
			return false, err.Error()
		}
		good, seen := 0, ""
		for _, node := range nodes.Items {
			ready := corev1.ConditionUnknown
			for _, c := range node.Status.Conditions {
				if c.Type == corev1.NodeReady {
					ready = c.Status
				}
			}
			seen += fmt.Sprintf("%s: Ready %s, %d Pods; ", node.Name, ready, node.Status.Capacity.Pods().Value())
			if ready == corev1.ConditionTrue && node.Status.Capacity.Pods().Value() == pods {
				good++
			}
		}
		return good == 2, seen
	}))
}
