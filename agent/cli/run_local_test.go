package cli

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/drover-dev/drover/agent/testenv/testhub"
	"github.com/drover-dev/drover/plans"
)

// newLocalMachine is a machine without a hub, unless remote is set.
func newLocalMachine(t *testing.T, remote bool) *machine {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root, as the agent does")
	}
	m := &machine{t: t, dir: t.TempDir(), program: os.Args[0]}
	text := fmt.Sprintf("workDirectory: %[1]s/var/work\nlocalEnabled: true\nlocalPlanDirectory: %[1]s/plans\ninterlockDirectory: %[1]s/lock\n"+
		"agentRegistriesFile: %[1]s/registries.yaml\nimagesDirectory: %[1]s/images\nappliedPlanDirectory: %[1]s/applied\n"+
		"socket: %[1]s/agent.sock\n", m.dir)
	if remote {
		m.hub = testhub.New(t)
		m.hub.Connection(t, m.dir, "token")
		text += "remoteEnabled: true\nconnectionInfoFile: " + m.dir + "/rancher2_connection_info.json\n"
	}
	m.write("config.yaml", text)
	return m
}

// writePlan writes a plan file.
func (m *machine) writePlan(name string, plan plans.Plan) string {
	m.t.Helper()
	raw, err := plan.Encode()
	if err != nil {
		m.t.Fatal(err)
	}
	path := m.path("plans/" + name + ".plan")
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		m.t.Fatal(err)
	}
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		m.t.Fatal(err)
	}
	return plans.Checksum(raw)
}

func (m *machine) position(name string) map[string]any {
	var values map[string]any
	_ = json.Unmarshal([]byte(m.read("plans/"+name+".pos")), &values)
	return values
}

// TestLocalPlansWithoutAHub runs an agent without a hub. Plans are applied in order, an interrupted plan continues, a changed plan is
// applied again, and a removed plan ends with its instructions (B22: the output of validate-config is true).
func TestLocalPlansWithoutAHub(t *testing.T) {
	t.Parallel()
	m := newLocalMachine(t, false)
	first := m.writePlan("10-first", plans.Plan{Instructions: []plans.Instruction{shell("one", "echo first >>"+m.path("ran"))}})
	second := m.writePlan("sub/20-second", plans.Plan{Instructions: []plans.Instruction{
		shell("one", "echo second >>"+m.path("ran")+"; echo $CATTLE_AGENT_ATTEMPT_NUMBER"),
		shell("two", "echo third >>"+m.path("ran")+"; while [ ! -e "+m.path("go")+" ]; do sleep 0.05; done"),
	}})
	m.start()
	m.until("the second instruction", func() bool { return strings.HasSuffix(m.read("ran"), "third\n") })
	if got := m.position("10-first"); got["appliedChecksum"] != first {
		t.Errorf("got %v", got)
	}
	if err := m.end(syscall.SIGKILL); err == nil {
		t.Error("the agent was not killed")
	}
	m.write("go", "")
	m.start()
	m.until("the end of the second", func() bool { return m.position("sub/20-second")["appliedChecksum"] == second })
	if ran := m.read("ran"); !strings.HasPrefix(ran, "first\nsecond\nthird\n") || strings.Count(ran, "first") != 1 || strings.Count(ran,
		"second") != 1 {
		t.Errorf("ran %q", ran)
	}
	periodic := plans.Plan{PeriodicInstructions: []plans.PeriodicInstruction{{PeriodSeconds: 3600, CommonInstruction: plans.CommonInstruction{
		Name: "p", Command: "sh", Args: []string{"-c",
			"trap 'touch " + m.path("ended") + "; exit' TERM; touch " + m.path("begun") + "; while :; do sleep 0.05; done"}}}}}
	m.writePlan("sub/20-second", periodic)
	m.until("the periodic instruction", func() bool { _, err := os.Stat(m.path("begun")); return err == nil })
	if err := os.Remove(m.path("plans/sub/20-second.plan")); err != nil {
		t.Fatal(err)
	}
	m.until("its end", func() bool { _, err := os.Stat(m.path("ended")); return err == nil })
	m.until("its state to go", func() bool {
		names, _ := filepath.Glob(m.path("var/state/local/*"))
		return cmp.Equal(names, []string{m.path("var/state/local/10-first")})
	})
	if err := m.end(syscall.SIGTERM); err != nil {
		t.Errorf("ended with %v", err)
	}
}

// TestFailedLocalPlanIsSeenAndTriedAgain shows that B16 cannot happen: a failure is not recorded as a success, and plans that fail in
// turns do not fill the history.
func TestFailedLocalPlanIsSeenAndTriedAgain(t *testing.T) {
	t.Parallel()
	m := newLocalMachine(t, false)
	sums := map[string]string{}
	for _, name := range []string{"a", "b"} {
		sums[name] = m.writePlan(name, plans.Plan{Instructions: []plans.Instruction{shell("one",
			"echo "+name+"$CATTLE_AGENT_ATTEMPT_NUMBER >>"+m.path("ran")+"; exit 4")}})
	}
	m.start()
	for _, name := range []string{"a", "b"} {
		m.until("the failure of "+name, func() bool { return m.position(name)["failedChecksum"] == sums[name] })
		if got := m.position(name); got["appliedChecksum"] != nil || got["failureCount"] != 1.0 {
			t.Errorf("got %v", got)
		}
	}
	// On a busy machine the first may have been attempted again by now.
	if got := m.read("ran"); !strings.HasPrefix(got, "a1\nb1\n") {
		t.Errorf("ran %q", got)
	}
	if names, _ := filepath.Glob(m.path("applied/local/*/*.plan")); len(names) != 2 {
		t.Errorf("the history is %v", names)
	}
	// An incomplete plan is reported and changes nothing.
	m.write("plans/b.plan", `{"instructions":[`)
	m.until("the error in status", func() bool {
		code, out, _ := run1("status", "--config", m.path("config.yaml"))
		return code != 0 && strings.Contains(out, "INVALID since") && strings.Contains(out, "invalid plan")
	})
	// A corrected plan is applied without waiting for the next try.
	corrected := m.writePlan("a", plans.Plan{Instructions: []plans.Instruction{shell("one", "true")}})
	m.until("the success", func() bool {
		return m.position("a")["appliedChecksum"] == corrected && m.position("a")["failedChecksum"] == nil
	})
}

// TestLocalAndRemoteTogether shows that both sources work together, one plan at a time.
func TestLocalAndRemoteTogether(t *testing.T) {
	t.Parallel()
	m := newLocalMachine(t, true)
	exclusive := "mkdir " + m.path("busy") + " && sleep 0.3 && echo $0 >>" + m.path("ran") + " && rmdir " + m.path("busy")
	one := shell("one", exclusive)
	local := m.writePlan("a", plans.Plan{Instructions: []plans.Instruction{one, one}})
	remote := m.deliver(plans.Plan{Instructions: []plans.Instruction{one, one, one}})
	m.start()
	m.until("both", func() bool {
		return m.position("a")["appliedChecksum"] == local && m.status().AppliedChecksum == remote && m.status().State == plans.StateSucceeded
	})
	if got := strings.Count(m.read("ran"), "\n"); got != 5 {
		t.Errorf("ran %d instructions", got)
	}
	// The hub's plan and the file's are known by their own journals.
	if err := m.end(syscall.SIGTERM); err != nil {
		t.Errorf("ended with %v", err)
	}
	if names, _ := filepath.Glob(m.path("lock/*")); len(names) != 0 {
		t.Errorf("the interlock is left: %v", names)
	}
	m.start()
	last := m.deliver(plans.Plan{Instructions: []plans.Instruction{shell("last", "true")}})
	m.until("the next plan", func() bool { return m.status().AppliedChecksum == last && m.status().State == plans.StateSucceeded })
	if got := strings.Count(m.read("ran"), "\n"); got != 5 {
		t.Errorf("ran %d instructions after a restart", got)
	}
}

// TestReadyWithoutAnyPlan shows that an agent without plans is ready. It creates the directory of plans.
func TestReadyWithoutAnyPlan(t *testing.T) {
	m := newLocalMachine(t, false)
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: m.path("notify"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	m.start()
	if err := conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 256)
	if n, err := conn.Read(buf); err != nil || !strings.HasPrefix(string(buf[:n]), "READY=1") {
		t.Fatalf("got %q, %v", buf[:n], err)
	}
	if info, err := os.Stat(m.path("plans")); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("got %v, %v", info, err)
	}
	if err := m.end(syscall.SIGTERM); err != nil {
		t.Errorf("ended with %v", err)
	}
}
