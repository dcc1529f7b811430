//go:build e2e

package agent

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/drover-dev/drover/plans"
)

// TestLocalPlans has a machine without any hub.
func TestLocalPlans(t *testing.T) {
	t.Parallel()
	n := newNode(t, "local")
	n.install("CATTLE_REMOTE_ENABLED=false", "CATTLE_LOCAL_ENABLED=true",
		"CATTLE_AGENT_METRICS_ADDRESS=unix:///run/rancher-system-agent/metrics.sock")
	put := func(name string, plan plans.Plan) {
		raw, err := plan.Encode()
		must(t, err)
		n.write(varDir+"/plans/"+name, string(raw), 0o600)
	}
	put("10-first.plan", plans.Plan{Files: []plans.File{file("/etc/local", "by a plan")},
		Instructions: []plans.Instruction{shell("a", "echo first >>/root/ran")}})
	until(t, "the first plan", func() bool { return n.read("/root/ran") == "first\n" && n.read("/etc/local") == "by a plan" })
	put("20-second.plan", plans.Plan{Instructions: []plans.Instruction{shell("b", "echo second >>/root/ran")}})
	until(t, "the second plan", func() bool { return n.read("/root/ran") == "first\nsecond\n" })
	until(t, "the position files", func() bool {
		return strings.Contains(n.read(varDir+"/plans/10-first.pos"), "appliedChecksum") &&
			strings.Contains(n.read(varDir+"/plans/20-second.pos"), "appliedChecksum")
	})
	metrics := n.do("curl", "-sS", "--unix-socket", "/run/rancher-system-agent/metrics.sock", "http://agent/metrics")
	if !strings.Contains(metrics, `system_agent_attempts_total{source=`) {
		t.Errorf("metrics:\n%s", metrics)
	}
	until(t, "an agent that is ready", func() bool {
		return n.do("curl", "-sS", "--unix-socket", "/run/rancher-system-agent/metrics.sock", "http://agent/readyz") == "ok"
	})
	n.do("systemctl", "restart", service)
	time.Sleep(2 * time.Second) // for what must not happen
	if got := n.read("/root/ran"); got != "first\nsecond\n" {
		t.Errorf("after a restart: %q", got)
	}
}

// oldUnit is laid out as the script of rancher-system-agent does it.
const oldUnit = `[Unit]
Description=Rancher System Agent
Wants=network-online.target
After=network-online.target
[Install]
WantedBy=multi-user.target
[Service]
EnvironmentFile=-/etc/default/rancher-system-agent
EnvironmentFile=-/etc/sysconfig/rancher-system-agent
EnvironmentFile=-/etc/systemd/system/rancher-system-agent.env
Type=simple
Restart=always
RestartSec=5s
Environment=CATTLE_LOGLEVEL=debug
Environment=CATTLE_AGENT_CONFIG=/etc/rancher/agent/config.yaml
Environment=CATTLE_AGENT_STRICT_VERIFY=false
ExecStart=/usr/local/bin/rancher-system-agent sentinel
`

// TestDropIn upgrades a machine on which rancher-system-agent runs and has applied a plan of a hub without plan-state.
func TestDropIn(t *testing.T) {
	t.Parallel()
	n := newNode(t, "dropin")
	plan, err := plans.Plan{Instructions: []plans.Instruction{shell("old", "echo old >>/root/ran")}}.Encode()
	must(t, err)
	checksum := plans.Checksum(plan)
	n.hub.Change(func(s *corev1.Secret) {
		s.Data = map[string][]byte{plans.KeyPlan: plan, plans.KeyAppliedChecksum: []byte(checksum), "appliedPlan": plan,
			"success-count": []byte("1"),
			"failure-count": []byte("0"), "last-apply-time": []byte(plans.FormatTime(time.Now().Add(-time.Hour).UTC()))}
	})
	n.connect()
	n.write(configFile, fmt.Sprintf("workDirectory: %[1]s/work\nappliedPlanDirectory: %[1]s/applied\nremoteEnabled: true\nlocalEnabled: "+
		"false\n"+
		"localPlanDirectory: %[1]s/plans\ninterlockDirectory: %[1]s/interlock\npreserveWorkDirectory: true\nconnectionInfoFile: %[2]s\n", varDir,
		connectionFile), 0o600)
	id := strings.Repeat("c", 63)
	n.write("/etc/rancher/agent/cattle-id", id, 0o600)
	n.write(varDir+"/applied/20260101-000000-applied.plan", fmt.Sprintf(`{"Plan":%s,"Checksum":%q}`, plan, checksum), 0o600)
	n.write("/etc/systemd/system/"+service+".env", "NO_PROXY=10.0.0.0/8 .svc\n", 0o600)
	n.write("/usr/local/bin/rancher-system-agent", "#!/bin/sh\nexec sleep infinity\n", 0o755)
	n.write("/etc/systemd/system/"+service+".service", oldUnit, 0o644)
	n.do("systemctl", "enable", "--now", service)

	said := n.install()
	if !strings.Contains(said, "keeping the connection in "+connectionFile) {
		t.Errorf("the script says:\n%s", said)
	}
	n.running(0)
	for _, name := range []string{service + ".service", "system-agent.service"} {
		until(t, name+" as it should be", func() bool {
			return n.do("systemctl", "show", "--property=Type,ActiveState,Id", name) == "Type=notify\nId="+service+".service\nActiveState=active"
		})
	}
	if got := n.do("systemd-analyze", "verify", service+".service"); got != "" {
		t.Errorf("systemd finds fault with the unit: %s", got)
	}
	if got := n.do("/usr/local/bin/rancher-system-agent", "--version"); !strings.HasPrefix(got, "system-agent version") {
		t.Errorf("the old name runs %q", got)
	}
	if got := n.read("/etc/rancher/agent/cattle-id"); got != id {
		t.Errorf("the id is %q", got)
	}
	if config := n.read(configFile); !strings.Contains(config, "preserveWorkDirectory: true\n") {
		t.Errorf("configuration:\n%s", config)
	}
	until(t, "a watch", func() bool { return strings.Contains(strings.Join(n.hub.Requests(), " "), "WATCH") })
	time.Sleep(2 * time.Second) // for what must not happen
	if got := n.read("/root/ran"); got != "" {
		t.Errorf("what was applied ran again: %q", got)
	}
	next, err := plans.Plan{Instructions: []plans.Instruction{shell("new", "echo new >>/root/ran")}}.Encode()
	must(t, err)
	n.hub.Change(func(s *corev1.Secret) { s.Data[plans.KeyPlan] = next })
	until(t, "the next plan", func() bool { return n.status().AppliedChecksum == plans.Checksum(next) })
	if got := n.read("/root/ran"); got != "new\n" {
		t.Errorf("ran: %q", got)
	}
	until(t, "an entry of the journal with fields", func() bool {
		res, err := n.Exec(t.Context(), "journalctl", "--quiet", "-u", service, "-o", "cat", "--output-fields=PLAN_CHECKSUM,MESSAGE",
			"PLAN_CHECKSUM="+plans.Checksum(next)[:12])
		return err == nil && res.ExitCode == 0 && strings.TrimSpace(res.Stdout) != ""
	})

	n.do("/usr/local/bin/system-agent-uninstall.sh")
	if left := n.do("sh", "-c", "ls -d /usr/local/bin/*system-agent* /etc/rancher/agent /var/lib/rancher/agent "+
		"/etc/systemd/system/*system-agent* 2>/dev/null || true"); left != "" {
		t.Errorf("left after uninstalling:\n%s", left)
	}
	if pid := n.pid(); pid != 0 {
		t.Error("the agent still runs")
	}
}
