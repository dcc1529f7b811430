package integration

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/plans"
)

// agentProcess is the real agent, as a process of its own, with the credentials that the gateway gave it. Hub and agent share no code
// but package plans, so the program is built rather than imported.
type agentProcess struct {
	t   *testing.T
	env *gatewayEnv
	dir string
	key types.NamespacedName
	cmd *exec.Cmd
}

// buildAgent builds the agent once for all tests.
var buildAgent = sync.OnceValues(func() (string, error) {
	program := filepath.Join(env.Dir, "system-agent")
	if out, err := exec.Command("go", "build", "-o", program, "github.com/drover-dev/drover/agent").CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the agent: %w\n%s", err, out)
	}
	return program, nil
})

func startAgent(t *testing.T, e *gatewayEnv, id string) *agentProcess {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root, as the agent does")
	}
	a := &agentProcess{t: t, env: e, dir: t.TempDir()}
	program, err := buildAgent()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(program, a.path("system-agent")); err != nil {
		t.Fatal(err)
	}
	code, answer := e.register(e.token, id, machineSecret)
	if code != http.StatusOK {
		t.Fatalf("registering: %d %s", code, answer)
	}
	e.awaitAccepted(answer)
	_, a.key.Namespace, a.key.Name = machineConfig(t, answer)
	a.write("rancher2_connection_info.json", answer)
	a.write("config.yaml", fmt.Sprintf("remoteEnabled: true\nworkDirectory: %[1]s/var/work\nconnectionInfoFile: "+
		"%[1]s/rancher2_connection_info.json\nsocket: none\n", a.dir))
	a.start()
	return a
}

func (a *agentProcess) path(name string) string { return filepath.Join(a.dir, name) }

func (a *agentProcess) write(name, text string) {
	a.t.Helper()
	if err := os.WriteFile(a.path(name), []byte(text), 0o600); err != nil {
		a.t.Fatal(err)
	}
}

func (a *agentProcess) read(name string) string {
	raw, _ := os.ReadFile(a.path(name))
	return string(raw)
}

func (a *agentProcess) start() {
	a.t.Helper()
	log, err := os.OpenFile(a.path("log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		a.t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(a.path("system-agent"), "run", "--config", a.path("config.yaml"))
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		a.t.Fatal(err)
	}
	a.cmd = cmd
	a.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if a.t.Failed() {
			a.t.Logf("the agent says:\n%s", a.read("log"))
		}
	})
}

func (a *agentProcess) end(signal os.Signal) {
	a.t.Helper()
	if err := a.cmd.Process.Signal(signal); err != nil {
		a.t.Fatal(err)
	}
	_ = a.cmd.Wait()
}

func (a *agentProcess) secret() *corev1.Secret {
	a.t.Helper()
	secret := &corev1.Secret{}
	if err := a.env.client.Get(a.t.Context(), a.key, secret); err != nil {
		a.t.Fatal(err)
	}
	return secret
}

func (a *agentProcess) status() plans.Status {
	a.t.Helper()
	status, err := plans.DecodeStatus(a.secret().Data)
	if err != nil {
		a.t.Fatal(err)
	}
	return status
}

// deliver delivers a plan as the hub does.
func (a *agentProcess) deliver(plan plans.Plan) string {
	a.t.Helper()
	raw, err := plan.Encode()
	if err != nil {
		a.t.Fatal(err)
	}
	a.change(func(secret *corev1.Secret) { plans.Deliver(secret.Data, raw, 1, 1) })
	return plans.Checksum(raw)
}

// until waits for a state of the plan.
func (a *agentProcess) until(state plans.State) plans.Status {
	a.t.Helper()
	var status plans.Status
	eventually(a.t, "the plan to be "+string(state), func() error {
		if status = a.status(); status.State != state {
			return fmt.Errorf("it is %s, in revision %d, after %.12s was applied at %s", status.State, status.Revision, status.AppliedChecksum,
				status.LastApplyTime)
		}
		return nil
	})
	return status
}

func shell(name, script string) plans.Instruction {
	return plans.Instruction{CommonInstruction: plans.CommonInstruction{Name: name, Command: "sh", Args: []string{"-c", script}},
		SaveOutput: true}
}

func TestAgentAppliesPlans(t *testing.T) {
	t.Parallel()
	e := startGateway(t, apiServer(t))
	e.runControllers()
	a := startAgent(t, e, "agent-1")
	before := a.secret()

	checksum := a.deliver(plans.Plan{
		Files:        []plans.File{{Path: a.path("etc/config"), Content: "YTogYgo="}},
		Instructions: []plans.Instruction{shell("install", "cat "+a.path("etc/config"))},
		Probes:       map[string]plans.Probe{"hub": {HTTPGet: plans.HTTPGetAction{URL: e.settings.ServerURL + "/healthz", Insecure: true}}},
	})
	got := a.until(plans.StateSucceeded)
	if got.AppliedChecksum != checksum || string(got.AppliedOutput["install"]) != "a: b\n" || got.Revision != 1 {
		t.Errorf("got %+v", got)
	}
	eventually(t, "the probe to succeed", func() error {
		if got := a.status().ProbeStatuses; !got["hub"].Healthy {
			return fmt.Errorf("the probes are %+v", got)
		}
		return nil
	})
	// The hub notes in the Secret that the plan is applied and its probes have passed; all else has to be the agent's.
	var after *corev1.Secret
	eventually(t, "the hub to take note", func() error {
		if after = a.secret(); after.Annotations[rkev1.PlanProbesPassedAnnotation] == "" ||
			!bytes.Equal(after.Data[plans.KeyAppliedPlan], after.Data[plans.KeyPlan]) {
			return errors.New("it has not yet")
		}
		return nil
	})
	delete(after.Annotations, rkev1.PlanProbesPassedAnnotation)
	if diff := cmp.Diff(before.Labels, after.Labels) + cmp.Diff(before.Annotations, after.Annotations, cmpopts.EquateEmpty()); diff != "" ||
		before.Type != after.Type {
		t.Error("the agent changed more than its keys: ", diff)
	}
	eventually(t, "the agent to write nothing while nothing changes", func() error {
		before := a.secret().Data
		time.Sleep(7 * time.Second) // more than a period of probes, one of which may fail on a slow machine
		if diff := cmp.Diff(before, a.secret().Data); diff != "" {
			return errors.New(diff)
		}
		return nil
	})

	checksum = a.deliver(plans.Plan{Instructions: []plans.Instruction{shell("fail", "echo why; echo because >&2; exit 4")}})
	got = a.until(plans.StateFailed)
	if got.FailedChecksum != checksum || got.FailureCount != 1 || string(got.FailedOutput["fail"]) != "why\n" || !got.Failed(checksum, 1) {
		t.Errorf("got %+v", got)
	}
	if text := string(got.FailedOutput["system-agent-error"]); !strings.Contains(text, "exit code 4; last output:\nbecause") {
		t.Errorf("got %q", text)
	}

	// Killed in the middle of an instruction, the agent goes on with it, and with the same attempt.
	a.deliver(plans.Plan{Instructions: []plans.Instruction{
		shell("first", "echo first >>"+a.path("ran")),
		shell("second", "echo second-$CATTLE_AGENT_ATTEMPT_NUMBER >>"+a.path("ran")+"; [ -e "+a.path("go")+" ] || sleep 60"),
	}})
	eventually(t, "the second instruction", func() error {
		if !strings.Contains(a.read("ran"), "second") {
			return fmt.Errorf("ran %q", a.read("ran"))
		}
		return nil
	})
	a.end(syscall.SIGKILL)
	a.write("go", "")
	a.start()
	a.until(plans.StateSucceeded)
	if diff := cmp.Diff("first\nsecond-1\nsecond-1\n", a.read("ran")); diff != "" {
		t.Error(diff)
	}
}

func TestAgentWithoutPlanState(t *testing.T) {
	t.Parallel()
	e := startGateway(t, apiServer(t))
	e.runControllers()
	a := startAgent(t, e, "agent-2")
	// The plan that a new machine has, "{}", is delivered without a state, as hubs did before plan-state.
	eventually(t, "the plan to be applied", func() error {
		if got := a.status(); got.AppliedChecksum != plans.Checksum([]byte("{}")) || got.State != "" || got.SuccessCount != 1 {
			return fmt.Errorf("got %+v", got)
		}
		return nil
	})
}
