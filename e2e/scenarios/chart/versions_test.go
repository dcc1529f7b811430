//go:build e2e && full

package chart

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/e2e/hosts"
	"github.com/drover-dev/drover/e2e/scenarios/suite"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
)

// previousVersion is what the programs that make bin/previous has built say that they are.
const previousVersion = "v0.0.0-previous"

// TestPreviousVersion begins with hubs and an agent of an earlier version. The hub on one VM is upgraded. The hub in a cluster is upgraded
// and rolled back while the machine has the earlier agent, and again while it has the agent to which the hub has upgraded it. All work with
// each other, and neither the distribution nor an agent is restarted by it.
func TestPreviousVersion(t *testing.T) {
	previous := bin(shared.Lab, "previous")
	m := &management{replicas: 2, downstream: client.ObjectKey{Namespace: "fleet-default", Name: "edge"}}
	suite.Step(t, "the hub on this machine is of the previous version", func(t *testing.T) { useHub(t, previous) })
	m.makeCluster(t, "manager4", "edge4")
	managed := client.ObjectKey{Namespace: "fleet-default", Name: m.host.Name}
	var newer string // than previousVersion
	suite.Step(t, "it is upgraded, and its cluster goes on", func(t *testing.T) {
		suite.Must(t, shared.WaitConnected(t.Context(), shared.Hub, managed, 3*time.Minute))
		checkAgent(t, m.host, previousVersion)
		goesOn(t, m.host, []string{"k3s", agentUnit}, func() {
			useHub(t, bin(shared.Lab, ""))
			var err error
			newer, err = shared.HubVersion(t.Context())
			suite.Must(t, err)
			waitClusterAgent(t, shared.Hub, managed, newer)
			suite.Must(t, shared.WaitClusterReady(t.Context(), shared.Hub, managed, 3*time.Minute))
		})
	})
	suite.Step(t, "a Job as of the system-upgrade-controller upgrades its agent", func(t *testing.T) {
		goesOn(t, m.host, []string{"k3s"}, func() {
			m.upgradeByJob(t)
			checkAgent(t, m.host, newer)
		})
		suite.Must(t, shared.WaitClusterReady(t.Context(), shared.Hub, managed, 3*time.Minute))
	})
	suite.Step(t, "helm installs a hub of the previous version, and a machine becomes a cluster of it", func(t *testing.T) {
		suite.Must(t, push(t.Context(), shared.Lab, previous, previousVersion))
		m.chart = filepath.Join(previous, "chart", "drover-"+previousVersion[1:]+".tgz")
		m.installRestricted(t)
		m.makeDownstream(t)
		checkAgent(t, m.machine, previousVersion)
	})
	current := makeFile(t, "chart", version, "chart/drover-"+version[1:]+".tgz")
	upgrade := []string{"upgrade", release, current, "--reset-then-reuse-values"}
	suite.Step(t, "helm upgrade replaces the hub, and the earlier agent works with it", func(t *testing.T) {
		m.replaceHub(t, newer, upgrade...)
		m.checkWorks(t, 1)
	})
	suite.Step(t, "helm rollback puts the earlier hub back", func(t *testing.T) {
		m.replaceHub(t, previousVersion, "rollback", release)
		m.checkWorks(t, 2)
	})
	suite.Step(t, "upgraded again, the hub upgrades the agent", func(t *testing.T) {
		m.replaceHub(t, newer, upgrade...)
		goesOn(t, m.machine, []string{"k3s"}, func() {
			m.change(t, func(c *provisioningv1.Cluster) { c.Spec.RedeploySystemAgentGeneration++ })
			suite.Must(t, shared.WaitAgentsUpgraded(t.Context(), m.api, m.downstream, 3*time.Minute))
			checkAgent(t, m.machine, newer)
		})
		m.checkWorks(t, 3)
	})
	suite.Step(t, "after helm rollback, the newer agent works with the earlier hub", func(t *testing.T) {
		m.replaceHub(t, previousVersion, "rollback", release)
		m.checkWorks(t, 4)
		checkAgent(t, m.machine, newer)
	})
}

// useHub starts the lab's hub from a folder of programs, with its image of the cluster-agent in the registry.
func useHub(t *testing.T, programs string) {
	t.Helper()
	if _, err := os.Stat(filepath.Join(programs, "hub")); err != nil {
		t.Fatalf("%v: run make bin/previous first", err)
	}
	suite.Must(t, shared.StopHub())
	shared.UsePrograms(programs)
	suite.Must(t, shared.ReleaseClusterAgent(t.Context()))
	suite.Must(t, shared.StartHub(t.Context()))
}

// checkAgent waits until a host runs the agent of a version, which it may have just replaced.
func checkAgent(t *testing.T, host *hosts.Host, version string) {
	t.Helper()
	suite.Must(t, shared.WaitFor(t.Context(), host.Name+" runs "+version, time.Minute, func(ctx context.Context) (bool, string) {
		res, err := host.Exec(ctx, "sh", "-c", "/proc/$(systemctl show --value -p MainPID "+agentUnit+")/exe --version")
		if err != nil {
			return false, err.Error()
		}
		return strings.TrimSpace(res.Stdout) == "system-agent version "+version, res.Stdout + res.Stderr
	}))
}

// goesOn fails the test if one of the units of a host is restarted by a change.
func goesOn(t *testing.T, host *hosts.Host, units []string, change func()) {
	t.Helper()
	started := map[string]string{}
	for _, unit := range units {
		started[unit] = startOf(t, host, unit)
	}
	change()
	for _, unit := range units {
		if now := startOf(t, host, unit); now != started[unit] {
			t.Errorf("%s of %s was restarted: %s, was %s", unit, host.Name, now, started[unit])
		}
	}
}

// waitClusterAgent waits until a cluster has the cluster-agent of a version, and it is connected.
func waitClusterAgent(t *testing.T, hub client.Client, key client.ObjectKey, version string) {
	t.Helper()
	what := "the cluster-agent of " + key.String() + " is " + version
	suite.Must(t, shared.WaitFor(t.Context(), what, 3*time.Minute, func(ctx context.Context) (bool, string) {
		api, _, err := shared.ClusterClient(ctx, hub, key)
		if err != nil {
			return false, err.Error()
		}
		d := &appsv1.Deployment{}
		if err := api.Get(ctx, client.ObjectKey{Namespace: "cattle-system", Name: "cattle-cluster-agent"}, d); err != nil {
			return false, err.Error()
		}
		image := d.Spec.Template.Spec.Containers[0].Image
		done := d.Status.ObservedGeneration == d.Generation && d.Status.UpdatedReplicas == d.Status.Replicas && d.Status.ReadyReplicas > 0
		return done && strings.HasSuffix(image, ":"+version), fmt.Sprintf("%s, %+v", image, d.Status)
	}))
	suite.Must(t, shared.WaitConnected(t.Context(), hub, key, 3*time.Minute))
}

// replaceHub replaces the hub with helm by one of a version. Gateway and tunnel answer meanwhile, the machine applies no more than the
// manifest of the other cluster-agent, and nothing there is restarted.
func (m *management) replaceHub(t *testing.T, version string, args ...string) {
	t.Helper()
	attempts := m.waitQuiet(t)
	goesOn(t, m.machine, []string{"k3s", agentUnit}, func() {
		report := m.watchAccess(t)
		m.helm(t, append(args, "--wait", "--timeout", "5m")...)
		m.waitReplicas(t)
		waitClusterAgent(t, m.api, m.downstream, version)
		report()
		suite.Must(t, shared.WaitClusterReady(t.Context(), m.api, m.downstream, 3*time.Minute))
		if applied := m.waitQuiet(t) - attempts; applied > 1 {
			t.Errorf("%d plans were applied, want only the one with the manifest of the cluster-agent", applied)
		}
	})
}

// checkWorks has the hub and the agent apply a change and save a snapshot, and uses the cluster. n is greater each time.
func (m *management) checkWorks(t *testing.T, n int) {
	t.Helper()
	m.addManifest(t, fmt.Sprintf("added-%d", n))
	m.saveSnapshot(t, n)
	suite.Must(t, shared.WaitClusterReady(t.Context(), m.api, m.downstream, 3*time.Minute))
	m.checkReachable(t)
}
