//go:build e2e

package agent

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/drover-dev/drover/agent/testenv/testhub"
	"github.com/drover-dev/drover/e2e/hosts"
	"github.com/drover-dev/drover/packaging/install"
	"github.com/drover-dev/drover/plans"
)

const (
	service        = "rancher-system-agent"
	varDir         = "/var/lib/rancher/agent"
	connectionFile = varDir + "/rancher2_connection_info.json"
	configFile     = "/etc/rancher/agent/config.yaml"
)

// node is a host and the hub that its agent looks to, which listens on the host's own loopback device.
type node struct {
	t *testing.T
	*hosts.Host
	hub *testhub.Hub
}

// newNode makes a host, with folders that lie on disks of their own: of those a power cut leaves what was synced.
func newNode(t *testing.T, name string, disks ...string) *node {
	t.Helper()
	host, err := lab.MakeHost(t.Context(), hosts.HostOptions{Name: name, Disks: disks})
	must(t, err)
	must(t, host.Boot(t.Context()))
	listener, err := host.Listen()
	must(t, err)
	n := &node{t: t, Host: host, hub: testhub.NewOn(t, listener)}
	t.Cleanup(func() {
		if t.Failed() {
			out, _ := os.Create(filepath.Join(os.TempDir(), "drover-e2e-"+name+".log"))
			defer out.Close()
			_ = host.Logs(context.Background(), out)
			t.Log("the journal of the host is in", out.Name())
		}
		if os.Getenv("DROVER_E2E_KEEP") == "" {
			_ = host.Remove()
		}
	})
	return n
}

// connect writes connection info for the hub, as a registration does.
func (n *node) connect() {
	n.t.Helper()
	ca := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: n.hub.Certificate().Raw}))
	raw, err := json.Marshal(map[string]string{"namespace": "fleet-default", "secretName": "plan", "kubeConfig": fmt.Sprintf(
		"apiVersion: v1\nkind: Config\nclusters:\n- name: agent\n  cluster:\n    server: %s\n    certificate-authority-data: %s\n"+
			"users:\n- name: agent\n  user:\n    token: token\ncontexts:\n- name: agent\n  context: {cluster: agent, user: agent}\ncurrent-context: agent\n", n.hub.URL, ca)})
	must(n.t, err)
	n.write(connectionFile, string(raw), 0o600)
}

// install runs the install script with an agent from a file, and no hub to download from.
func (n *node) install(env ...string) string {
	n.t.Helper()
	n.copy(binary(), "/root/media/agent")
	n.write("/root/media/uninstall.sh", string(install.UninstallScript()), 0o755)
	script, err := install.Script()
	must(n.t, err)
	env = append(env, "CATTLE_AGENT_BINARY_LOCAL=true", "CATTLE_AGENT_BINARY_LOCAL_LOCATION=/root/media/agent",
		"CATTLE_AGENT_UNINSTALL_LOCAL=true", "CATTLE_AGENT_UNINSTALL_LOCAL_LOCATION=/root/media/uninstall.sh")
	var exports strings.Builder
	for _, e := range env {
		name, value, _ := strings.Cut(e, "=")
		fmt.Fprintf(&exports, "export %s=%s\n", name, install.Quote(value))
	}
	res, err := n.Script(n.t.Context(), exports.String()+string(script), nil)
	must(n.t, err)
	if res.ExitCode != 0 {
		n.t.Fatalf("the install script ends with %d: %s", res.ExitCode, res.Stdout+res.Stderr)
	}
	return res.Stdout
}

// do runs a program on the host and gives what it prints.
func (n *node) do(argv ...string) string {
	n.t.Helper()
	res, err := n.Exec(n.t.Context(), argv...)
	must(n.t, err)
	if res.ExitCode != 0 {
		n.t.Fatalf("%s ends with %d: %s", strings.Join(argv, " "), res.ExitCode, res.Stdout+res.Stderr)
	}
	return strings.TrimSpace(res.Stdout)
}

func (n *node) write(path, text string, mode os.FileMode) {
	n.t.Helper()
	must(n.t, os.MkdirAll(filepath.Dir(n.Path(path)), 0o755))
	must(n.t, os.WriteFile(n.Path(path), []byte(text), mode))
	must(n.t, os.Chmod(n.Path(path), mode))
}

// copy puts a file of this machine onto the host, replacing what is there by a rename.
func (n *node) copy(from, to string) {
	n.t.Helper()
	must(n.t, os.MkdirAll(filepath.Dir(n.Path(to)), 0o755))
	in, err := os.Open(from)
	must(n.t, err)
	defer in.Close()
	out, err := os.OpenFile(n.Path(to+".new"), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o755)
	must(n.t, err)
	_, err = io.Copy(out, in)
	must(n.t, err)
	must(n.t, out.Close())
	must(n.t, os.Rename(n.Path(to+".new"), n.Path(to)))
}

// read gives a file of the host, and nothing where it is missing.
func (n *node) read(path string) string {
	raw, _ := os.ReadFile(n.Path(path))
	return string(raw)
}

// pid is the agent's process as this machine sees it; 0 while there is none.
func (n *node) pid() int {
	raw, _ := filepath.Glob("/proc/[0-9]*/root")
	for _, link := range raw {
		dir := filepath.Dir(link)
		cmdline, err := os.ReadFile(dir + "/cmdline")
		if err != nil || !strings.HasSuffix(string(cmdline), "system-agent\x00run\x00") {
			continue
		}
		if ns, err := os.Readlink(dir + "/ns/net"); err != nil || ns != n.netns() {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err == nil {
			return pid
		}
	}
	return 0
}

// netns is the host's network namespace, as a process of it names it.
func (n *node) netns() string {
	var stat syscall.Stat_t
	if err := syscall.Stat("/run/netns/"+lab.Name+"-"+n.Name, &stat); err != nil {
		return ""
	}
	return fmt.Sprintf("net:[%d]", stat.Ino)
}

// running waits for an agent that is another process than before.
func (n *node) running(before int) int {
	n.t.Helper()
	pid := 0
	until(n.t, "the agent's process", func() bool {
		pid = n.pid()
		return pid != 0 && pid != before
	})
	return pid
}

func (n *node) deliver(plan plans.Plan) string {
	n.t.Helper()
	raw, err := plan.Encode()
	must(n.t, err)
	return n.hub.Deliver(string(raw))
}

func (n *node) status() plans.Status {
	n.t.Helper()
	status, err := plans.DecodeStatus(n.hub.Now().Data)
	must(n.t, err)
	return status
}

// ended waits until the hub knows how the plan ended.
func (n *node) ended() plans.Status {
	n.t.Helper()
	until(n.t, "the end of the plan", func() bool {
		state := n.status().State
		return state == plans.StateSucceeded || state == plans.StateFailed
	})
	return n.status()
}

// fast makes systemd restart the agent at once.
func (n *node) fast(more string) {
	n.t.Helper()
	n.write("/etc/systemd/system/"+service+".service.d/test.conf", "[Service]\nRestartSec=50ms\n"+more, 0o644)
	n.do("systemctl", "daemon-reload")
}

func shell(name, script string) plans.Instruction {
	return plans.Instruction{CommonInstruction: plans.CommonInstruction{Name: name, Command: "sh", Args: []string{"-c", script}},
		SaveOutput: true}
}

func file(path, content string) plans.File {
	return plans.File{Path: path, Content: base64.StdEncoding.EncodeToString([]byte(content)), Permissions: "0640"}
}
