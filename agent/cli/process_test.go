package cli

import (
	"archive/tar"
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"log"
	"net"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/drover-dev/drover/agent/testenv/testhub"
	"github.com/drover-dev/drover/plans"
)

// envAgent makes this test program an agent.
const envAgent = "DROVER_TEST_IS_AGENT"

func TestMain(m *testing.M) {
	if os.Getenv(envAgent) != "" {
		os.Exit(Main(os.Args[1:], os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// machine is a directory in which an agent runs as a separate process.
type machine struct {
	t   *testing.T
	dir string
	hub *testhub.Hub
	cmd *exec.Cmd
	// program is the binary of the agent.
	program string
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root, as the agent does")
	}
	m := &machine{t: t, dir: t.TempDir(), hub: testhub.New(t), program: os.Args[0]}
	m.write("config.yaml",
		fmt.Sprintf("workDirectory: %[1]s/var/work\nremoteEnabled: true\nconnectionInfoFile: %[1]s/rancher2_connection_info.json\n"+
			"agentRegistriesFile: %[1]s/registries.yaml\nimagesDirectory: %[1]s/images\nsocket: %[1]s/agent.sock\n", m.dir))
	m.hub.Connection(t, m.dir, "token")
	return m
}

func (m *machine) path(name string) string { return filepath.Join(m.dir, name) }

func (m *machine) write(name, text string) {
	m.t.Helper()
	if err := os.WriteFile(m.path(name), []byte(text), 0o600); err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) read(name string) string {
	raw, _ := os.ReadFile(m.path(name))
	return string(raw)
}

func (m *machine) start() {
	m.t.Helper()
	m.cmd = exec.Command(m.program, "sentinel", "--config", m.path("config.yaml"))
	m.cmd.Env = append(os.Environ(), envAgent+"=1", "NOTIFY_SOCKET="+m.path("notify"))
	log, err := os.OpenFile(m.path("log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		m.t.Fatal(err)
	}
	defer log.Close()
	m.cmd.Stdout, m.cmd.Stderr = log, log
	if err := m.cmd.Start(); err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() {
		_ = m.cmd.Process.Kill()
		_, _ = m.cmd.Process.Wait()
	})
}

// end ends the agent with a signal.
func (m *machine) end(signal os.Signal) error {
	m.t.Helper()
	if err := m.cmd.Process.Signal(signal); err != nil {
		m.t.Fatal(err)
	}
	return m.cmd.Wait()
}

func (m *machine) deliver(plan plans.Plan) string {
	m.t.Helper()
	raw, err := plan.Encode()
	if err != nil {
		m.t.Fatal(err)
	}
	return m.hub.Deliver(string(raw))
}

func (m *machine) status() plans.Status {
	m.t.Helper()
	status, err := plans.DecodeStatus(m.hub.Now().Data)
	if err != nil {
		m.t.Fatal(err)
	}
	return status
}

// until waits for a condition.
func (m *machine) until(what string, ready func() bool) {
	m.t.Helper()
	for range 3000 { // a minute: a busy machine may be long about starting a program
		if ready() {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	m.t.Fatalf("timed out waiting for %s; log of the agent:\n%s", what, m.read("log"))
}

func shell(name, script string) plans.Instruction {
	return plans.Instruction{CommonInstruction: plans.CommonInstruction{Name: name, Command: "sh", Args: []string{"-c", script}},
		SaveOutput: true}
}

func TestKilledInTheMiddle(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	checksum := m.deliver(plans.Plan{
		Files: []plans.File{{Path: m.path("etc/config"), Content: base64.StdEncoding.EncodeToString([]byte("a: b")), Permissions: "0640"}},
		Instructions: []plans.Instruction{
			shell("first", "echo first >>"+m.path("ran")+"; echo done"),
			shell("second", "echo second-$CATTLE_AGENT_ATTEMPT_NUMBER >>"+m.path("ran")+"; [ -e "+m.path("go")+" ] || sleep 60"),
		},
	})
	m.start()
	m.until("the second instruction", func() bool { return strings.Contains(m.read("ran"), "second") })
	_ = m.end(syscall.SIGKILL)
	if got := m.status().State; got != plans.StateInProgress {
		t.Errorf("state is %s", got)
	}
	m.write("go", "")
	m.start()
	m.until("success", func() bool { return m.status().State == plans.StateSucceeded })
	if diff := cmp.Diff("first\nsecond-1\nsecond-1\n", m.read("ran")); diff != "" {
		t.Error(diff)
	}
	if got := m.status(); got.AppliedChecksum != checksum || string(got.AppliedOutput["first"]) != "done\n" || got.Revision != 1 {
		t.Errorf("got %+v", got)
	}
	if info, err := os.Stat(m.path("etc/config")); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("got %v, %v", info, err)
	}
	if err := m.end(syscall.SIGTERM); err != nil {
		t.Errorf("ended with %v", err)
	}
}

func TestImageOverPlainHTTPMirror(t *testing.T) {
	m := newMachine(t)
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	script := "#!/bin/sh\nset -eu\n. ./values\necho installed $WHAT from $CATTLE_AGENT_EXECUTION_PWD by $RESTART_STAMP\n"
	for file, text := range map[string]string{"run.sh": script, "values": "WHAT=k3s\n"} {
		if err := w.WriteHeader(&tar.Header{Name: file, Size: int64(len(text)), Mode: 0o755}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, text); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	content, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(layer.Bytes())), nil })
	if err != nil {
		t.Fatal(err)
	}
	image, err := mutate.AppendLayers(empty.Image, content)
	if err != nil {
		t.Fatal(err)
	}
	ref, err := name.ParseReference(strings.TrimPrefix(server.URL, "http://") + "/rancher/system-agent-installer-k3s:v1")
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(ref, image); err != nil {
		t.Fatal(err)
	}
	m.write("registries.yaml", fmt.Sprintf("mirrors:\n  docker.io:\n    endpoint: [%q]\n", server.URL))
	m.deliver(plans.Plan{Instructions: []plans.Instruction{{
		CommonInstruction: plans.CommonInstruction{Name: "install", Image: "rancher/system-agent-installer-k3s:v1", Command: "sh",
			Args: []string{"-c", "run.sh"}, Env: []string{"RESTART_STAMP=stamp"}},
		SaveOutput: true,
	}}})
	m.start()
	m.until("success", func() bool { return m.status().State == plans.StateSucceeded })
	if got := string(m.status().AppliedOutput["install"]); !strings.HasPrefix(got, "installed k3s from "+m.path("var/work/")) ||
		!strings.HasSuffix(got, " by stamp\n") {
		t.Errorf("got %q", got)
	}
}

func TestNothingSecretIsLogged(t *testing.T) {
	const secret = "hunter2"
	m := newMachine(t)
	t.Setenv("CATTLE_LOGLEVEL", "debug")
	loud := shell("loud", "echo $SECRET; echo $SECRET >&2; exit 1")
	loud.Env = []string{"SECRET=" + secret}
	loud.Args = append(loud.Args, secret)
	m.deliver(plans.Plan{
		Files:        []plans.File{{Path: m.path("file"), Content: base64.StdEncoding.EncodeToString([]byte(secret))}},
		Instructions: []plans.Instruction{loud},
		PeriodicInstructions: []plans.PeriodicInstruction{{CommonInstruction: plans.CommonInstruction{Name: "p", Command: "sh",
			Args: []string{"-c", "echo " + secret + " >&2; exit 1"}}, SaveStderrOutput: true}},
	})
	m.start()
	m.until("failure", func() bool { return m.status().State == plans.StateFailed && len(m.status().PeriodicOutput) == 1 })
	if got := m.status(); string(got.FailedOutput["loud"]) != secret+"\n" || string(got.PeriodicOutput["p"].Stderr) != secret+"\n" {
		t.Errorf("got %+v", got)
	}
	if err := m.end(syscall.SIGTERM); err != nil {
		t.Errorf("ended with %v", err)
	}
	for _, text := range []string{secret, base64.StdEncoding.EncodeToString([]byte(secret))} {
		if strings.Contains(m.read("log"), text) {
			t.Errorf("the log holds %q:\n%s", text, m.read("log"))
		}
	}
	if !strings.Contains(m.read("log"), "Plan ended") {
		t.Errorf("the log is:\n%s", m.read("log"))
	}
}

func TestReadyWithoutTheHub(t *testing.T) {
	m := newMachine(t)
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: m.path("notify"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	m.hub.CloseClientConnections()
	m.hub.Close()
	m.start()
	if err := conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 256)
	n, err := conn.Read(buf)
	if err != nil || !strings.HasPrefix(string(buf[:n]), "READY=1") {
		t.Fatalf("got %q, %v", buf[:n], err)
	}
	m.until("a log line about the hub", func() bool { return strings.Contains(m.read("log"), "Watching the plan Secret failed") })
	started := time.Now()
	if err := m.end(syscall.SIGTERM); err != nil || time.Since(started) > time.Minute {
		t.Errorf("ended with %v after %s", err, time.Since(started))
	}
}
