package cli

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

func run1(args ...string) (int, string, string) {
	var stdout, stderr bytes.Buffer
	code := Main(args, &stdout, &stderr)
	return code, stdout.String(), stderr.String()
}

// TestPage checks that docs/agent.md lists every command.
func TestPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/agent.md")
	if err != nil {
		t.Fatal(err)
	}
	var check func(*cobra.Command)
	check = func(cmd *cobra.Command) {
		if cmd.Runnable() && !cmd.Hidden && !strings.Contains(string(page), "| `"+cmd.CommandPath()) {
			t.Errorf("%s is not in docs/agent.md", cmd.CommandPath())
		}
		for _, child := range cmd.Commands() {
			check(child)
		}
	}
	check(Root())
}

func TestCommands(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	config := write("config.yaml", "remoteEnabled: true\nconnectionInfoFile: "+dir+"/missing.json\n")
	local := write("local.yaml", "localEnabled: true\nlocalPlanDirectory: "+dir+"/plans\n")
	empty := write("empty.yaml", "{}")
	connection := write("rancher2_connection_info.json.tmp", `{"kubeConfig":"k","namespace":"n","secretName":"s"}`)
	enforced := write("enforced.yaml", "remoteEnabled: true\nplanSignatures: enforce\nconnectionInfoFile: "+connection+"\n")
	partial := write("partial.json", `{"kubeConfig":"k"}`)
	tests := map[string]struct {
		args           []string
		code           int
		stdout, stderr string
	}{
		"version":             {args: []string{"version"}, stdout: "system-agent dev linux/"},
		"--version":           {args: []string{"--version"}, stdout: "system-agent version dev\n"},
		"--help":              {args: []string{"--help"}, stdout: "validate-connection"},
		"config":              {args: []string{"validate-config", config}},
		"empty config":        {args: []string{"validate-config", empty}, code: 1, stderr: "at least one must be true"},
		"enforce without key": {args: []string{"validate-config", enforced}, code: 1, stderr: "enforce needs a planSigningKey"},
		"connection":          {args: []string{"validate-connection", connection}},
		"partial connection": {args: []string{"validate-connection", partial}, code: 1,
			stderr: "namespace: is required; secretName: is required"},
		"no such command":      {args: []string{"fly"}, code: 2, stderr: `unknown command "fly"`},
		"missing argument":     {args: []string{"validate-connection"}, code: 2, stderr: "accepts 1 arg(s), received 0"},
		"run, no config":       {args: []string{"run", "--config", dir + "/none.yaml"}, code: 1, stderr: "no such file"},
		"run, no connection":   {args: []string{"run", "--config", config}, code: 1, stderr: "missing.json: no such file"},
		"sentinel is an alias": {args: []string{"sentinel", "--config", empty}, code: 1, stderr: "at least one must be true"},
		"no such plan command": {args: []string{"plan", "burn"}, code: 2, stderr: `unknown command "burn" for "system-agent plan"`},
		"no such flag":         {args: []string{"status", "--loud"}, code: 2, stderr: "unknown flag: --loud"},
		"no such format":       {args: []string{"status", "-o", "xml"}, code: 2, stderr: `unknown format "xml": use text, json or yaml`},
		"two tokens": {args: []string{"join", "--token", "a", "--token-file", "b"}, code: 2,
			stderr: "--token and --token-file are mutually exclusive"},
		"completion":            {args: []string{"completion", "bash"}, stdout: "__start_system-agent"},
		"what config checked":   {args: []string{"validate-config", config}, stdout: "missing.json (missing)"},
		"what was connected":    {args: []string{"validate-connection", connection}, stdout: "plan Secret n/s"},
		"only plans from files": {args: []string{"validate-config", local}, stdout: "/plans (missing, created when the agent starts)"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if os.Getuid() != 0 && (test.args[0] == "run" || test.args[0] == "sentinel") {
				test.stderr = "must be run as root"
			}
			code, stdout, stderr := run1(test.args...)
			if code != test.code || !strings.Contains(stdout, test.stdout) || !strings.Contains(stderr, test.stderr) {
				t.Errorf("got %d %q %q", code, stdout, stderr)
			}
			if strings.Count(stderr, "\n") > 1 {
				t.Errorf("more than a line: %q", stderr)
			}
		})
	}
}

// TestShorts checks that every Short is an imperative of three to eight words, as in kubectl.
func TestShorts(t *testing.T) {
	var check func(cmd *cobra.Command)
	check = func(cmd *cobra.Command) {
		words := strings.Fields(cmd.Short)
		if len(words) < 3 || len(words) > 8 || strings.HasSuffix(cmd.Short, ".") || strings.HasSuffix(words[0], "s") {
			t.Errorf("%s: %q", cmd.CommandPath(), cmd.Short)
		}
		for _, sub := range cmd.Commands() {
			check(sub)
		}
	}
	check(Root())
}

func TestLogLevels(t *testing.T) {
	for level, want := range map[string]string{"": "iwe", "debug": "diwe", "TRACE": "diwe", "warn": "we", "error": "e", "panic": "e"} {
		var buf bytes.Buffer
		log, err := newLog(&buf, level)
		if err != nil {
			t.Fatal(err)
		}
		log.Debug("d")
		log.Info("i")
		log.Warn("w")
		log.Error("e")
		got := ""
		for line := range strings.Lines(buf.String()) {
			got += strings.TrimSpace(line[strings.Index(line, "msg=")+4:])
		}
		if got != want {
			t.Errorf("%q logs %q", level, got)
		}
	}
	if _, err := newLog(&bytes.Buffer{}, "loud"); err == nil ||
		fmt.Sprint(err) != `CATTLE_LOGLEVEL: unknown level "loud": use debug, info, warn or error` {
		t.Errorf("got %v", err)
	}
}

// TestUnknownLogLevel: the agent of a cluster runs with a level that is none, and what validates the configuration of a machine says so.
func TestUnknownLogLevel(t *testing.T) {
	t.Setenv(envLogLevel, "loud")
	var buf bytes.Buffer
	log := newClusterLog(&buf)
	log.Debug("d")
	log.Info("connected")
	got := buf.String()
	if !strings.Contains(got, "unknown level") || !strings.Contains(got, "msg=connected") || strings.Contains(got, "msg=d\n") {
		t.Errorf("got %q", got)
	}
	file := filepath.Join(t.TempDir(), "config.yaml")
	content := "localEnabled: true\nlocalPlanDirectory: /var/lib/rancher/agent/plans\n"
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, stderr := run1("validate-config", file); code == 0 || !strings.Contains(stderr, "CATTLE_LOGLEVEL: unknown level") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	t.Setenv(envLogLevel, "warn")
	if code, _, stderr := run1("validate-config", file); code != 0 {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}

// TestTrue: what the install script takes for true is true for the agent, too, which reads the same value.
func TestTrue(t *testing.T) {
	for value, want := range map[string]bool{"true": true, "TRUE": true, "True": true, "1": true, "": false, "false": false, "0": false} {
		if got := isTrue(value); got != want {
			t.Errorf("%q: got %v", value, got)
		}
	}
}
