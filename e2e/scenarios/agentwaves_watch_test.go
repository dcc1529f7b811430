//go:build e2e && full

package scenarios

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/e2e/lab"
	"github.com/drover-dev/drover/e2e/scenarios/suite"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/plans"
)

// faultFile is where the faulty agent looks for how to fail.
const faultFile = "/etc/agent-fault"

// faultyMain is main.go of an agent that fails as faultFile says when it is the service, and works otherwise.
const faultyMain = `package main

import (
	"os"
	"runtime"
	"syscall"
	"time"

	"github.com/drover-dev/drover/agent/cli"
)

func main() {
	fault, _ := os.ReadFile("` + faultFile + `")
	if len(os.Args) > 1 && os.Args[1] == "run" && os.Getenv("CUT_OFF") == "" {
		switch string(fault) {
		case "crash":
			os.Exit(7)
		case "hang":
			time.Sleep(time.Hour)
		case "cut off": // it has a network of its own, and goes on
			runtime.LockOSThread()
			if err := syscall.Unshare(syscall.CLONE_NEWNET); err != nil {
				panic(err)
			}
			panic(syscall.Exec("/proc/self/exe", os.Args, append(os.Environ(), "CUT_OFF=1")))
		}
	}
	os.Exit(cli.Main(os.Args[1:], os.Stdout, os.Stderr))
}
`

// buildFaultyAgent builds the agent of this checkout with faultyMain.
func buildFaultyAgent(t *testing.T, version string) string {
	t.Helper()
	dir := t.TempDir()
	source, overlay := filepath.Join(dir, "main.go"), filepath.Join(dir, "overlay.json")
	suite.Must(t, os.WriteFile(source, []byte(faultyMain), 0o644))
	replaced := fmt.Sprintf(`{"Replace": {%q: %q}}`, filepath.Join(shared.Repo, "agent", "main.go"), source)
	suite.Must(t, os.WriteFile(overlay, []byte(replaced), 0o644))
	return buildAgent(t, version, "-overlay", overlay)
}

// upgradeWitness sees every change of the plan Secrets of a cluster, in their order, and counts how many agents are being upgraded.
type upgradeWitness struct {
	servers, workers int

	mu       sync.Mutex
	machines map[string]*upgradeStanding
	// most are the most servers and workers at a time.
	most   map[bool]int
	events []string
	faults []string
}

// upgradeStanding is what a plan Secret says.
type upgradeStanding struct {
	server    bool
	requested plans.AgentUpgrade
	reported  plans.AgentStatus
}

// inProgress reports whether an agent counts against the limit in a generation: it was asked and has not answered, or has failed.
func (s *upgradeStanding) inProgress(generation int64) bool {
	if len(s.requested.Checksums) == 0 {
		return false
	}
	if s.reported.Generation != s.requested.Generation {
		return true
	}
	switch s.reported.Phase {
	case plans.UpgradeDone, plans.UpgradeRefused:
		return false
	case plans.UpgradeRolledBack:
		return s.requested.Generation == generation
	}
	return true
}

// done reports whether an agent was upgraded for a generation.
func (s *upgradeStanding) done(generation int64) bool {
	return s.reported.Generation == generation && s.reported.Phase == plans.UpgradeDone
}

// watchUpgrades begins to watch; servers and workers are how many may be upgraded at a time.
func watchUpgrades(t *testing.T, cluster client.ObjectKey, servers, workers int) *upgradeWitness {
	t.Helper()
	config, err := shared.HubConfig()
	suite.Must(t, err)
	config.Timeout = 0 // it would end the watch
	scheme, err := lab.Scheme()
	suite.Must(t, err)
	hub, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
	suite.Must(t, err)
	secrets, err := hub.Watch(t.Context(), &corev1.SecretList{}, client.InNamespace(cluster.Namespace),
		client.MatchingLabels{rkev1.ClusterNameLabel: cluster.Name})
	suite.Must(t, err)
	w := &upgradeWitness{servers: servers, workers: workers, machines: map[string]*upgradeStanding{}, most: map[bool]int{}}
	began := time.Now()
	go func() {
		defer secrets.Stop()
		for event := range secrets.ResultChan() {
			w.see(event, time.Since(began))
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if t.Context().Err() == nil {
			w.faults = append(w.faults, "the watch has ended")
		}
	}()
	return w
}

// see records a change.
func (w *upgradeWitness) see(event watch.Event, at time.Duration) {
	secret, ok := event.Object.(*corev1.Secret)
	if !ok || secret.Type != rkev1.MachinePlanSecretType {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	now := &upgradeStanding{server: secret.Labels[rkev1.EtcdRoleLabel] == "true"}
	if raw := secret.Data[plans.KeyAgentUpgrade]; len(raw) > 0 {
		var err error
		if now.requested, err = plans.DecodeUpgrade(raw); err != nil {
			w.faults = append(w.faults, err.Error())
		}
	}
	status, _ := plans.DecodeStatus(secret.Data)
	if status.Agent != nil {
		now.reported = *status.Agent
	}
	before := w.machines[secret.Name]
	w.machines[secret.Name] = now
	text := func(s *upgradeStanding) string {
		return fmt.Sprintf("requested %d (%t), reported %d %q %s", s.requested.Generation, len(s.requested.Checksums) > 0, s.reported.Generation,
			s.reported.Phase, s.reported.Version)
	}
	if before != nil && text(before) == text(now) {
		return
	}
	w.events = append(w.events, fmt.Sprintf("%6.1f s %s: %s", at.Seconds(), secret.Name, text(now)))
	w.count(now.requested.Generation)
}

// count compares what is in progress with the limits.
func (w *upgradeWitness) count(generation int64) {
	inProgress := map[bool]int{}
	serversDone := true
	for _, s := range w.machines {
		if s.inProgress(generation) {
			inProgress[s.server]++
		}
		serversDone = serversDone && (!s.server || s.done(generation))
	}
	for server, n := range inProgress {
		w.most[server] = max(w.most[server], n)
	}
	for name, s := range w.machines {
		if !s.server && len(s.requested.Checksums) > 0 && s.requested.Generation == generation && !serversDone {
			w.faults = append(w.faults, name+" was asked before the server was upgraded")
		}
	}
}

// check fails the test if a limit was exceeded, or was never reached.
func (w *upgradeWitness) check(t *testing.T) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, event := range w.events {
		t.Log(event)
	}
	for _, fault := range w.faults {
		t.Error(fault)
	}
	t.Logf("at most %d servers and %d workers at a time", w.most[true], w.most[false])
	if w.most[true] != w.servers || w.most[false] != w.workers {
		t.Errorf("at most %d servers and %d workers were upgraded at a time, want %d and %d", w.most[true], w.most[false], w.servers, w.workers)
	}
}

// untouched fails the test if machines were asked for the upgrade of a generation.
func (w *upgradeWitness) untouched(t *testing.T, namespace string, generation int64, machines ...*wavesMachine) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range machines {
		s := w.machines[planSecret(t, namespace, m.name)]
		if s == nil || s.requested.Generation == generation && len(s.requested.Checksums) > 0 {
			t.Errorf("%s was asked: %+v", m.Name, s)
		}
	}
}

// planSecret is the name of the plan Secret of a Machine.
func planSecret(t *testing.T, namespace, machine string) string {
	t.Helper()
	m := &clusterv1.Machine{}
	suite.Must(t, shared.Hub.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: machine}, m))
	return rkev1.PlanSecretName(m.Spec.Bootstrap.ConfigRef.Name)
}

// planReport is what the agent of a Machine has reported of its plan.
func planReport(t *testing.T, namespace, machine string) string {
	t.Helper()
	secret := &corev1.Secret{}
	suite.Must(t, shared.Hub.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: planSecret(t, namespace, machine)}, secret))
	s, err := plans.DecodeStatus(secret.Data)
	suite.Must(t, err)
	return fmt.Sprintf("plan %s %s at %s, revision %d, %d successes, %d failures", s.AppliedChecksum, s.State, s.LastApplyTime, s.Revision,
		s.SuccessCount, s.FailureCount)
}
