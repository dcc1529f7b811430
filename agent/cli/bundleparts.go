package cli

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/drover-dev/drover/agent/config"
	"github.com/drover-dev/drover/agent/doctor"
	"github.com/drover-dev/drover/agent/engine"
	"github.com/drover-dev/drover/agent/host"
	"github.com/drover-dev/drover/agent/preview"
	"github.com/drover-dev/drover/plans"
)

// versions says what this is.
func (b *bundle) versions() {
	var text strings.Builder
	fmt.Fprintf(&text, "time          %s\nsystem-agent  %s %s/%s %s\n", b.now.Format("2006-01-02T15:04:05Z"), Version, runtime.GOOS, runtime.GOARCH, runtime.Version())
	var name unix.Utsname
	if err := unix.Uname(&name); err == nil {
		fmt.Fprintf(&text, "kernel        %s %s %s\nhost          %s\n", unix.ByteSliceToString(name.Sysname[:]), unix.ByteSliceToString(name.Release[:]),
			unix.ByteSliceToString(name.Machine[:]), unix.ByteSliceToString(name.Nodename[:]))
	}
	b.add("versions.txt", []byte(text.String()))
	for _, path := range []string{"/etc/os-release", "/proc/meminfo", "/proc/loadavg"} {
		if raw, err := os.ReadFile(path); err == nil {
			b.add("machine/"+filepath.Base(path), raw)
		}
	}
}

// environment names the service's variables; values only of those that are known to be harmless.
func (b *bundle) environment(m doctor.Machine) {
	var text strings.Builder
	fmt.Fprintf(&text, "# %s\n", m.EnvironmentFrom)
	harmless := []string{envLogLevel, envConfig, envStrict, "CATTLE_AGENT_CONFIG_DIR", "CATTLE_AGENT_VAR_DIR", "CATTLE_AGENT_BIN_PREFIX", "PATH", "NO_PROXY", "no_proxy"}
	for _, pair := range slices.Sorted(slices.Values(m.Environment)) {
		name, value, _ := strings.Cut(pair, "=")
		switch {
		case name == "":
		case slices.Contains(harmless, name):
			fmt.Fprintf(&text, "%s=%s\n", name, value)
		case strings.HasSuffix(strings.ToUpper(name), "_PROXY"):
			fmt.Fprintf(&text, "%s=%s\n", name, withoutUser(value))
		default:
			fmt.Fprintf(&text, "%s=%s\n", name, b.hide.mark(value))
		}
	}
	b.add("environment.txt", []byte(text.String()))
}

// bundledConnection is what of the connection info may be shown.
type bundledConnection struct {
	Server     string `json:"server"`
	Namespace  string `json:"namespace"`
	SecretName string `json:"secretName"`
	// CA is the SHA-256 of the pinned certificates; Token tells whether there is one.
	CA    string `json:"caSHA256,omitempty"`
	Token bool   `json:"hasToken"`
}

// configuration adds the configuration and what the connection info may tell. The configuration has no secrets, but keys that this version
// does not know might be some, so only the known ones are written.
func (b *bundle) configuration(m doctor.Machine) {
	if m.ConfigErr != nil {
		b.fault("config.json", m.ConfigErr)
		return
	}
	b.json("config.json", m.Config)
	if !m.Config.RemoteEnabled {
		return
	}
	connection, err := config.LoadConnection(m.Config.ConnectionInfoFile)
	if err != nil {
		b.fault("connection.json", err)
		return
	}
	shown := bundledConnection{Namespace: connection.Namespace, SecretName: connection.SecretName}
	if cfg, err := clientcmd.RESTConfigFromKubeConfig([]byte(connection.KubeConfig)); err == nil {
		shown.Server, shown.Token = withoutUser(cfg.Host), cfg.BearerToken != ""
		if len(cfg.CAData) > 0 {
			sum := sha256.Sum256(cfg.CAData)
			shown.CA = hex.EncodeToString(sum[:])
		}
	}
	b.json("connection.json", shown)
}

func (b *bundle) examine(ctx context.Context, m doctor.Machine) {
	results := doctor.Examine(ctx, m)
	answer := doctorAnswer{Worst: doctor.Worst(results), Results: results}
	b.json("doctor.json", answer)
	var text strings.Builder
	writeDoctor(&text, answer, true)
	b.add("doctor.txt", []byte(text.String()))
}

// service adds the unit and the agent's log, which never holds secrets.
func (b *bundle) service(ctx context.Context) {
	for _, one := range []struct {
		name string
		args []string
	}{
		{"service/unit.txt", []string{"systemctl", "cat", serviceName}},
		{"service/status.txt", []string{"systemctl", "show", serviceName, "-p", "LoadState,ActiveState,SubState,Result,ExecMainStatus,NRestarts,MemoryCurrent,StatusText"}},
		{"service/runs.txt", []string{"systemctl", "list-units", "--all", "--no-pager", "--plain", "system-agent-*"}},
		{"service/journal.txt", []string{"journalctl", "-u", serviceName, "-n", "5000", "--no-pager", "-o", "short-iso"}},
	} {
		text, err := output(ctx, one.args[0], one.args[1:]...)
		if err != nil {
			b.fault(one.name, err)
			continue
		}
		b.add(one.name, []byte(text))
	}
}

// states adds what the agent tells: status, history, plans without their secrets, and how the files on the machine differ from them.
func (b *bundle) states(ctx context.Context, v *view) {
	b.json("status.json", v.answer())
	history, err := v.allHistory(ctx, "")
	if err != nil {
		b.fault("history.json", err)
	} else {
		b.json("history.json", history)
	}
	for _, state := range v.Status.Sources {
		name := url.PathEscape(state.Source)
		raw, err := v.plan(ctx, state)
		if err != nil {
			b.fault("plans/"+name+".json", err)
			continue
		}
		plan, err := plans.Decode(raw)
		if err != nil {
			b.fault("plans/"+name+".json", err)
			continue
		}
		b.json("plans/"+name+".json", planAnswer{Source: state.Source, Checksum: plans.Checksum(raw), Bytes: len(raw), Plan: b.hide.plan(plan, shown{})})
		files := preview.Files(host.Machine{}, plan.Files)
		for i := range files {
			files[i].Diff = ""
		}
		b.json("plans/"+name+"-files.json", files)
	}
}

// journalKeys are what of a line of the journal is shown. A key that a later version adds is hidden until it stands here.
var journalKeys = []string{"kind", "time", "index", "name", "saved", "succeeded", "final", "exit", "late", "spool", "begin", "attempts",
	"summary", "canceled", "incomplete", "rolledBack", "unsure", "maxFailures", "probePeriod"}

// journals adds the journals of all engines, line by line, without outputs, plans and messages.
func (b *bundle) journals(v *view) {
	for _, dir := range stateDirectories(v.host, v.cfg) {
		raw, err := v.host.ReadFile(filepath.Join(dir.path, engine.JournalName))
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
		return fmt.Appendf(nil, "%q", b.hide.mark(string(line)))
	}
	for key, value := range fields {
		if !slices.Contains(journalKeys, key) {
			mark, _ := json.Marshal(b.hide.mark(string(value)))
			fields[key] = mark
		}
	}
	shown, err := json.Marshal(fields)
	if err != nil {
		return nil
	}
	return shown
}
