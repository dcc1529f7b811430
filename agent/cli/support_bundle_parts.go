package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/drover-dev/drover/agent/config"
	"github.com/drover-dev/drover/agent/doctor"
	"github.com/drover-dev/drover/agent/engine/journal"
	"github.com/drover-dev/drover/agent/host"
	"github.com/drover-dev/drover/agent/host/systemd"
	"github.com/drover-dev/drover/agent/preview"
	"github.com/drover-dev/drover/plans"
)

// versions adds the versions of agent, kernel and operating system, and the load of the machine.
func (b *bundle) versions() {
	text := fmt.Sprintf("time          %s\n%s\n", b.now.Format(time.RFC3339), versionText())
	b.add("versions.txt", []byte(text))
	for _, path := range []string{"/etc/hostname", "/etc/os-release", "/proc/version", "/proc/meminfo", "/proc/loadavg"} {
		if raw, err := os.ReadFile(path); err == nil {
			b.add("machine/"+filepath.Base(path), raw)
		}
	}
}

// visibleVariables are the environment variables whose values are not secret.
var visibleVariables = []string{envLogLevel, envConfig, envStrict, "CATTLE_AGENT_CONFIG_DIR", "CATTLE_AGENT_VAR_DIR",
	"CATTLE_AGENT_BIN_PREFIX", "PATH", "NO_PROXY", "no_proxy"}

// environment adds the variables of the service, other values than those of visibleVariables as marks.
func (b *bundle) environment(m doctor.Machine) {
	var text strings.Builder
	fmt.Fprintf(&text, "# %s\n", m.EnvironmentFrom)
	for _, pair := range slices.Sorted(slices.Values(m.Environment)) {
		name, value, _ := strings.Cut(pair, "=")
		switch {
		case name == "":
			continue
		case slices.Contains(visibleVariables, name):
		case strings.HasSuffix(strings.ToUpper(name), "_PROXY"):
			value = doctor.RedactURL(value)
		default:
			value = b.redact.mark(value)
		}
		fmt.Fprintf(&text, "%s=%s\n", name, value)
	}
	b.add("environment.txt", []byte(text.String()))
}

// bundledConnection is the connection info without its credentials.
type bundledConnection struct {
	Server     string `json:"server"`
	Namespace  string `json:"namespace"`
	SecretName string `json:"secretName"`
	// CA is the SHA-256 of the pinned certificates in hexadecimal; Token is true if the connection info has a token.
	CA    string `json:"caSHA256,omitempty"`
	Token bool   `json:"hasToken"`
}

// configuration adds the configuration and the connection info. Only known keys of the configuration are written, since others may be
// secrets.
func (b *bundle) configuration(m doctor.Machine) {
	b.addJSON("config.json", m.Config, m.ConfigErr)
	if m.ConfigErr != nil || !m.Config.RemoteEnabled {
		return
	}
	connection, err := config.LoadConnection(m.Config.ConnectionInfoFile)
	redacted := bundledConnection{Namespace: connection.Namespace, SecretName: connection.SecretName}
	if cfg, err := clientcmd.RESTConfigFromKubeConfig([]byte(connection.KubeConfig)); err == nil {
		redacted.Server, redacted.Token = doctor.RedactURL(cfg.Host), cfg.BearerToken != ""
		if len(cfg.CAData) > 0 {
			redacted.CA = plans.Checksum(cfg.CAData)
		}
	}
	b.addJSON("connection.json", redacted, err)
}

func (b *bundle) doctor(ctx context.Context, m doctor.Machine) {
	output := newDoctorOutput(doctor.Run(ctx, m))
	b.addJSON("doctor.json", output, nil)
	var text strings.Builder
	writeDoctor(&text, output, true)
	b.add("doctor.txt", []byte(text.String()))
}

// unitFile is the file of a bundle with the unit and its drop-ins.
const unitFile = "service/unit.txt"

// service adds the unit, without values of variables, and the agent's log, which contains no secrets. The log of a legacy agent, which ran
// in a unit of the same name and may have logged secrets, is left out by its identifier; systemd's lines about the unit are included.
func (b *bundle) service(ctx context.Context) {
	for name, command := range map[string][]string{
		unitFile: {"systemctl", "cat", unitName},
		"service/status.txt": {"systemctl", "show", unitName, "-p",
			"LoadState,ActiveState,SubState,Result,ExecMainStatus,NRestarts,MemoryCurrent,StatusText"},
		"service/runs.txt": {"systemctl", "list-units", "--all", "--no-pager", "--plain", "system-agent-*"},
		"service/journal.txt": {"journalctl", "-u", unitName, "-t", systemd.SyslogIdentifier, "-t", "systemd", "-n", "5000", "--no-pager",
			"-o", "short-iso"},
	} {
		text, err := programOutput(ctx, command[0], command[1:]...)
		if err != nil {
			b.fault(name, err)
			continue
		}
		if name == unitFile {
			text = b.redact.unit(text)
		}
		b.add(name, []byte(text))
	}
}

// states adds status, history, the plans without secrets, and which files on the machine differ from them.
func (b *bundle) states(ctx context.Context, v *view) {
	b.addJSON("status.json", v.statusOutput(), nil)
	history, err := v.allHistory(ctx, "")
	b.addJSON("history.json", history, err)
	for _, state := range v.status.Sources {
		name := "plans/" + url.PathEscape(state.Source)
		raw, err := v.plan(ctx, state)
		var plan plans.Plan
		if err == nil {
			plan, err = plans.Decode(raw)
		}
		b.addJSON(name+".json", planOutput{Source: state.Source, Checksum: plans.Checksum(raw), Bytes: len(raw),
			Plan: b.redact.plan(plan, visibleFields{})}, err)
		if err != nil {
			continue
		}
		files := preview.Files(host.Local{}, plan.Files)
		for i := range files {
			files[i].Diff = ""
		}
		b.addJSON(name+"-files.json", files, nil)
	}
}

// visibleJournalKeys are the keys of a journal entry that are not secret. A key that a later version adds is hidden until it is listed.
var visibleJournalKeys = []string{"kind", "time", "index", "name", "saved", "succeeded", "final", "exit", "late", "spool", "begin",
	"attempts", "summary", "canceled", "incomplete", "rolledBack", "maxFailures", "probePeriod"}

// journals adds the journals of all engines, line by line, without outputs, plans and messages.
func (b *bundle) journals(v *view) {
	for _, dir := range stateDirectories(v.host, v.cfg.StateDirectory) {
		raw, err := v.host.ReadFile(filepath.Join(dir.path, journal.FileName))
		if err != nil {
			if !os.IsNotExist(err) {
				b.fault("journal of "+dir.source, err)
			}
			continue
		}
		var out bytes.Buffer
		for line := range bytes.Lines(raw) {
			out.Write(b.journalLine(line))
			out.WriteByte('\n')
		}
		b.add("journals/"+url.PathEscape(dir.source)+".jsonl", out.Bytes())
	}
}

func (b *bundle) journalLine(line []byte) []byte {
	fields := map[string]json.RawMessage{}
	if json.Unmarshal(line, &fields) != nil {
		return fmt.Appendf(nil, "%q", b.redact.mark(string(line)))
	}
	for key, value := range fields {
		if !slices.Contains(visibleJournalKeys, key) {
			mark, _ := json.Marshal(b.redact.mark(string(value)))
			fields[key] = mark
		}
	}
	raw, err := json.Marshal(fields)
	if err != nil {
		return nil
	}
	return raw
}
