//go:build e2e && full

package scenarios

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/e2e/lab"
	"github.com/drover-dev/drover/e2e/scenarios/suite"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

const (
	wavesOld, wavesFaulty, wavesGood = "v0.0.1", "v0.0.2", "v0.0.3"
	// wavesTimeout is how long a new agent may take: on a busy machine, one that works must not be rolled back.
	wavesTimeout = 25 * time.Second
	wavesPaused  = "paused because of failures; correct them and increase spec.redeploySystemAgentGeneration"
)

// handedOut is the agent for this machine among those that a hub hands out.
const handedOut = "system-agent-" + runtime.GOARCH

// TestAgentUpgradeWaves has the hub upgrade the agents of a server and four workers, two workers at a time. First it hands out an agent
// that fails on the server, then on two of the workers: the upgrade pauses both times, the machines that failed run their previous agent,
// and those after them are not touched. Then it hands out one that works everywhere. The distribution is not restarted, and no plan is
// applied twice.
func TestAgentUpgradeWaves(t *testing.T) {
	w := &waves{key: client.ObjectKey{Namespace: "fleet-default", Name: "waves"}, assets: handOut(t)}
	w.makeCluster(t)
	suite.Step(t, "the agents are of an earlier version", func(t *testing.T) {
		w.installOld(t)
		w.orderMachines(t)
	})
	before := w.state(t)
	witness := watchUpgrades(t, w.key, 1, 2)
	server, first, second, third, last := w.machines[0], w.machines[1], w.machines[2], w.machines[3], w.machines[4]
	faulty := buildFaultyAgent(t, wavesFaulty)

	suite.Step(t, "the agent fails on the server, and the workers are not touched", func(t *testing.T) {
		server.fault(t, "crash")
		w.request(t, faulty)
		w.waitCluster(t, metav1.ConditionFalse, "Paused", fmt.Sprintf(
			"0 of 5 agents upgraded; rolled back: %s; waiting: %s; versions: v0.0.1 (5); %s", server.name, w.names(1, 2, 3, 4), wavesPaused))
		w.check(t, []string{"RolledBack", "Waiting", "Waiting", "Waiting", "Waiting"}, wavesOld, wavesOld, wavesOld, wavesOld, wavesOld)
		witness.untouched(t, w.key.Namespace, 1, first, second, third, last)
	})
	suite.Step(t, "the agent fails on two of four workers, and the last one is not touched", func(t *testing.T) {
		server.fault(t, "")
		second.fault(t, "hang")
		third.fault(t, "cut off")
		w.request(t, faulty)
		w.waitCluster(t, metav1.ConditionFalse, "Paused", fmt.Sprintf(
			"2 of 5 agents upgraded; rolled back: %s; waiting: %s; versions: v0.0.1 (3), v0.0.2 (2); %s", w.names(2, 3), last.name, wavesPaused))
		w.check(t, []string{"Upgraded", "Upgraded", "RolledBack", "RolledBack", "Waiting"},
			wavesFaulty, wavesFaulty, wavesOld, wavesOld, wavesOld)
		witness.untouched(t, w.key.Namespace, 2, last)
	})
	suite.Step(t, "an agent that works everywhere is installed on all", func(t *testing.T) {
		w.request(t, buildAgent(t, wavesGood))
		w.waitCluster(t, metav1.ConditionTrue, "Upgraded", "5 of 5 agents upgraded; versions: v0.0.3 (5)")
		w.check(t, []string{"Upgraded", "Upgraded", "Upgraded", "Upgraded", "Upgraded"}, wavesGood, wavesGood, wavesGood, wavesGood, wavesGood)
	})
	suite.Step(t, "never more than two workers were upgraded at a time, after the server", func(t *testing.T) { witness.check(t) })
	if diff := cmp.Diff(before, w.state(t)); diff != "" {
		t.Errorf("a distribution was restarted, or a worker has applied a plan (-before +after):\n%s", diff)
	}
	w.appliedOnce(t)
}

// waves is a cluster of a server and four workers.
type waves struct {
	key client.ObjectKey
	// assets is the directory of the agents that the hub hands out.
	assets     string
	generation int64
	// machines are the server, and the workers in the order in which they are upgraded: that of the names of their Machines.
	machines []*wavesMachine
}

// wavesMachine is a host and the name of its Machine.
type wavesMachine struct {
	*rancherHost
	name string
}

// handOut restarts the hub with a directory of agents of the test's own, which is empty, and returns that.
func handOut(t *testing.T) string {
	t.Helper()
	programs, dir := filepath.Join(shared.Repo, "bin"), t.TempDir()
	for _, name := range []string{"hub", "installer"} {
		suite.Must(t, os.Symlink(filepath.Join(programs, name), filepath.Join(dir, name)))
	}
	assets := filepath.Join(dir, "assets")
	suite.Must(t, os.Mkdir(assets, 0o755))
	putAgent(t, filepath.Join(programs, "assets", handedOut), filepath.Join(assets, handedOut))
	restart := func(programs string) error {
		if err := shared.StopHub(); err != nil {
			return err
		}
		shared.UsePrograms(programs)
		return shared.StartHub(context.Background())
	}
	suite.Must(t, restart(dir))
	t.Cleanup(func() {
		if err := restart(programs); err != nil {
			t.Error(err)
		}
	})
	return assets
}

func (w *waves) makeCluster(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	for i := range 5 {
		host := &rancherHost{Host: shared.NewHost(t, fmt.Sprintf("waves%d", i)), unit: lab.K3s.AgentUnit}
		w.machines = append(w.machines, &wavesMachine{rancherHost: host})
	}
	w.machines[0].unit = lab.K3s.ServerUnit
	t.Cleanup(func() { shared.DeleteCluster(t, w.key) })
	suite.Step(t, "a server and four workers are Ready", func(t *testing.T) {
		suite.Must(t, shared.ApplyCluster(ctx, shared.Hub, w.key))
		changeCluster(t, w.key, func(c *provisioningv1.Cluster) {
			c.Spec.RKEConfig.UpgradeStrategy = rkev1.ClusterUpgradeStrategy{ControlPlaneConcurrency: "1", WorkerConcurrency: "2"}
		})
		server, _, err := shared.TokenCommand(ctx, shared.Hub, w.key, lab.AllRoles...)
		suite.Must(t, err)
		worker, _, err := shared.TokenCommand(ctx, shared.Hub, w.key, "--worker")
		suite.Must(t, err)
		suite.Must(t, shared.Register(ctx, w.machines[0].Host, server))
		var wg sync.WaitGroup
		for _, m := range w.machines[1:] {
			wg.Go(func() {
				if err := shared.Register(ctx, m.Host, worker); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		suite.Must(t, shared.WaitClusterReady(ctx, shared.Hub, w.key, 10*time.Minute))
		awaitNodes(t, w.key, 5)
	})
}

// installOld installs the first agent on all machines, with a short upgradeTimeout.
func (w *waves) installOld(t *testing.T) {
	t.Helper()
	old := buildAgent(t, wavesOld)
	for _, m := range w.machines {
		putAgent(t, old, m.Path(installedAgent))
		m.ask(t, fmt.Sprintf("echo 'upgradeTimeout: %s' >>/etc/rancher/agent/config.yaml", wavesTimeout))
		m.ask(t, "systemctl reload rancher-system-agent")
		m.runs(t, "system-agent version "+wavesOld)
	}
}

func (w *waves) orderMachines(t *testing.T) {
	t.Helper()
	for _, m := range w.machines {
		m.name = m.machine(t, w.key)
	}
	slices.SortFunc(w.machines[1:], func(a, b *wavesMachine) int { return strings.Compare(a.name, b.name) })
}

// names joins names of Machines as conditions do.
func (w *waves) names(machines ...int) string {
	var names []string
	for _, i := range machines {
		names = append(names, w.machines[i].name)
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// request has the hub hand out an agent, and requests the upgrade.
func (w *waves) request(t *testing.T, built string) {
	t.Helper()
	putAgent(t, built, filepath.Join(w.assets, handedOut))
	w.generation++
	changeCluster(t, w.key, func(c *provisioningv1.Cluster) { c.Spec.RedeploySystemAgentGeneration = w.generation })
}

// waitCluster waits for a condition of the Cluster.
func (w *waves) waitCluster(t *testing.T, status metav1.ConditionStatus, reason, message string) {
	t.Helper()
	suite.Must(t, shared.WaitFor(t.Context(), reason+": "+message, 3*time.Minute, func(ctx context.Context) (bool, string) {
		c := &provisioningv1.Cluster{}
		if err := shared.Hub.Get(ctx, w.key, c); err != nil {
			return false, err.Error()
		}
		got := meta.FindStatusCondition(c.Status.Conditions, provisioningv1.SystemAgentsUpgradedCondition)
		if got == nil {
			return false, "no condition"
		}
		done := got.Status == status && got.Reason == reason && got.Message == message
		return done, string(got.Status) + " " + got.Reason + ": " + got.Message
	}))
}

// check compares the conditions of all machines, and the versions of the agents that run and are installed there.
func (w *waves) check(t *testing.T, reasons []string, versions ...string) {
	t.Helper()
	for i, m := range w.machines {
		machine, bootstrap := &clusterv1.Machine{}, &rkev1.RKEBootstrap{}
		key := client.ObjectKey{Namespace: w.key.Namespace, Name: m.name}
		suite.Must(t, shared.Hub.Get(t.Context(), key, machine))
		key.Name = machine.Spec.Bootstrap.ConfigRef.Name
		suite.Must(t, shared.Hub.Get(t.Context(), key, bootstrap))
		const kind = rkev1.SystemAgentUpgradedCondition
		got, same := meta.FindStatusCondition(machine.Status.Conditions, kind), meta.FindStatusCondition(bootstrap.Status.Conditions, kind)
		if got == nil || same == nil || got.Reason != reasons[i] || same.Reason != reasons[i] {
			t.Errorf("%s: the conditions of Machine and RKEBootstrap are %+v and %+v, want the reason %s", m.Name, got, same, reasons[i])
		} else {
			t.Logf("%s: %s %s: %s", m.Name, got.Status, got.Reason, got.Message)
		}
		m.waitAgent(t, versions[i])
	}
}

// waitAgent waits until a machine runs a version, which is installed too, and nothing of an upgrade is left there. An agent that was
// rolled back reports that before the unit that has done it has removed its timer.
func (m *wavesMachine) waitAgent(t *testing.T, version string) {
	t.Helper()
	const look = "/proc/$(systemctl show --value -p MainPID rancher-system-agent)/exe --version 2>&1; " +
		installedAgent + " --version 2>&1; systemctl is-active rancher-system-agent; find /etc/systemd/system -name '*rollback*'; true"
	want := strings.Repeat("system-agent version "+version+"\n", 2) + "active"
	suite.Must(t, shared.WaitFor(t.Context(), m.Name+" runs "+version, time.Minute, func(context.Context) (bool, string) {
		got := m.ask(t, look)
		return got == want, got
	}))
}

// fault is how the faulty agent fails on the machine; empty for not at all.
func (m *wavesMachine) fault(t *testing.T, kind string) {
	t.Helper()
	suite.Must(t, os.WriteFile(m.Path(faultFile), []byte(kind), 0o644))
}

// state is what must not change: when the distribution was started on each machine, and what was reported of the plan of workers. The
// server gets a plan that writes the changed Cluster into the metadata of its snapshots.
func (w *waves) state(t *testing.T) map[string]string {
	t.Helper()
	state := map[string]string{}
	for i, m := range w.machines {
		state[m.Name] = m.ask(t, "systemctl show -p ActiveEnterTimestampMonotonic,ExecMainPID,NRestarts "+m.unit)
		if i > 0 {
			state[m.Name] += "\n" + planReport(t, w.key.Namespace, m.name)
		}
	}
	return state
}

// appliedOnce fails the test if an agent has applied a plan twice.
func (w *waves) appliedOnce(t *testing.T) {
	t.Helper()
	for _, m := range w.machines {
		log := m.ask(t, "journalctl --quiet -u rancher-system-agent -o cat -g 'Applying plan checksum=' | grep -o 'checksum=[0-9a-f]*'")
		plans := strings.Fields(log)
		slices.Sort(plans)
		if all := len(plans); all == 0 || len(slices.Compact(plans)) != all {
			t.Errorf("%s has applied the plans\n%s", m.Name, log)
		}
	}
}
