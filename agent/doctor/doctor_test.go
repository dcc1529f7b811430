package doctor

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/drover-dev/drover/agent/config"
	"github.com/drover-dev/drover/agent/control"
	"github.com/drover-dev/drover/agent/engine"
)

// tree creates a directory for Machine.Root; names that end in a slash are directories, "-> x" is a symbolic link.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		switch target, link := strings.CutPrefix(text, "-> "); {
		case strings.HasSuffix(name, "/"):
			err = os.MkdirAll(path, 0o755)
		case link:
			err = os.Symlink(target, path)
		default:
			err = os.WriteFile(path, []byte(text), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// render renders results, one a line.
func render(results []Result) string {
	var lines []string
	for _, r := range results {
		line := string(r.Verdict) + " " + r.Check + ": " + r.Message
		if r.Verdict == Warning || r.Verdict == Problem {
			if r.Advice == "" {
				line += " (NO ADVICE)"
			}
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

func TestDisk(t *testing.T) {
	const block = 4096
	free := func(bytes, files uint64, flags int64) func(string, *unix.Statfs_t) error {
		return func(_ string, stat *unix.Statfs_t) error {
			*stat = unix.Statfs_t{Bsize: block, Blocks: 100 << 30 / block, Bavail: bytes / block, Files: 100, Ffree: files, Flags: flags}
			return nil
		}
	}
	tests := map[string]struct {
		statfs func(string, *unix.Statfs_t) error
		want   string
	}{
		"fine":      {free(50<<30, 50, 0), "ok disk /var/lib/rancher/agent/work: 50 GiB of 100 GiB free, 50% of inodes free"},
		"little":    {free(3<<30, 50, 0), "warning disk /var/lib/rancher/agent/work: 3.0 GiB of 100 GiB free, 50% of inodes free"},
		"full":      {free(0, 50, 0), "problem disk /var/lib/rancher/agent/work: 0 B of 100 GiB free, 50% of inodes free"},
		"no inodes": {free(50<<30, 0, 0), "problem disk /var/lib/rancher/agent/work: 50 GiB of 100 GiB free, 0% of inodes free"},
		"read-only": {free(50<<30, 50, unix.ST_RDONLY),
			"problem disk /var/lib/rancher/agent/work: 50 GiB of 100 GiB free, 50% of inodes free, read-only"},
		"noexec": {free(50<<30, 50, unix.ST_NOEXEC),
			"problem disk /var/lib/rancher/agent/work: 50 GiB of 100 GiB free, 50% of inodes free, noexec"},
		"broken": {func(string, *unix.Statfs_t) error { return errors.New("input/output error") },
			"problem disk /var/lib/rancher/agent/work: input/output error"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := Machine{Root: tree(t, nil), Statfs: test.statfs, Config: config.Config{WorkDirectory: "/var/lib/rancher/agent/work"}}
			if got := render(checkDisk(t.Context(), m)); got != test.want {
				t.Errorf("got\n%s\nwant\n%s", got, test.want)
			}
		})
	}
}

func TestService(t *testing.T) {
	const show = "LoadState=loaded\nActiveState=active\nSubState=running\nUnitFileState=enabled\nNRestarts=0\n"
	booted := map[string]string{"run/systemd/system/": ""}
	tests := map[string]struct {
		files map[string]string
		show  string
		err   error
		want  string
	}{
		"runs": {booted, show, nil, "ok service: active (running), enabled"},
		"failed": {booted, strings.Replace(show, "active\nSubState=running", "failed\nSubState=failed", 1), nil,
			"problem service: failed (failed), enabled"},
		"no unit": {booted, "LoadState=not-found\nActiveState=inactive\n", nil, "problem service: unit rancher-system-agent is not installed"},
		"masked": {booted, "LoadState=masked\nActiveState=inactive\nSubState=dead\nUnitFileState=masked\nNRestarts=0\n", nil,
			"problem service: unit rancher-system-agent is masked, inactive"},
		"loops": {booted, strings.Replace(show, "NRestarts=0", "NRestarts=1800", 1), nil,
			"warning service: active (running), enabled, restarted 1800 times"},
		"disabled":   {booted, strings.Replace(show, "enabled", "disabled", 1), nil, "warning service: active (running), disabled"},
		"no systemd": {nil, "", nil, "warning service: systemd is not running"},
		"no manager": {booted, "", errors.New("no bus"), "skipped service: systemctl failed: no bus"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := Machine{Root: tree(t, test.files), Output: func(context.Context, string, ...string) (string, error) { return test.show, test.err }}
			if got := render(checkService(t.Context(), m)); got != test.want {
				t.Errorf("got\n%s\nwant\n%s", got, test.want)
			}
		})
	}
}

func TestAgent(t *testing.T) {
	now := time.Date(2026, 11, 21, 3, 0, 0, 0, time.UTC)
	applies := &control.Status{Version: "v1", PID: 7, Sources: []engine.State{{Source: "hub", Phase: engine.PhaseApplying, Contacted: true}}}
	away := &control.Status{Sources: []engine.State{{Source: "hub", Contacted: true, SourceError: "connection refused",
		SourceErrorSince: now.Add(-time.Hour)}, {Source: "local/a"},
		{Source: "local/b", SourceError: "decoding plan: empty", SourceErrorSince: now.Add(-time.Hour)}}}
	interlocks := config.Config{InterlockDirectory: "/var/interlock"}
	active := map[string]string{"var/interlock/applyinator-active": "", "var/interlock/restart-pending": ""}
	agent := func(comm, args, space string) map[string]string {
		files := map[string]string{"proc/self/ns/pid": "-> pid:[1]"}
		for _, pid := range []string{"7", "8"} {
			files["proc/"+pid+"/comm"] = comm + "\n"
			files["proc/"+pid+"/cmdline"] = "/usr/local/bin/system-agent\x00" + args + "\x00"
			files["proc/"+pid+"/ns/pid"] = "-> pid:[1]"
		}
		files["proc/8/ns/pid"] = "-> pid:[" + space + "]"
		return files
	}
	tests := map[string]struct {
		run   func(context.Context, Machine) []Result
		files map[string]string
		m     Machine
		want  string
	}{
		"answers":     {checkAgent, nil, Machine{Agent: applies}, "ok agent: version v1, PID 7"},
		"not running": {checkAgent, nil, Machine{AgentErr: control.ErrNotRunning}, "problem agent: no agent is listening"},
		"no configuration": {checkAgent, nil, Machine{ConfigErr: errors.New("x")},
			"skipped agent: the socket is unknown without a configuration"},
		"contact": {checkContact, nil, Machine{Agent: away},
			"problem contact with hub: lost since 2026-11-21T02:00:00Z: connection refused\n" +
				"skipped plan file of local/a: not read yet\n" +
				"problem plan file of local/b: invalid since 2026-11-21T02:00:00Z: decoding plan: empty"},
		"interlocks at work": {checkInterlocks, map[string]string{"var/interlock/applyinator-active": ""}, Machine{Config: interlocks,
			Agent: applies}, "ok interlocks: none stale"},
		"interlocks left": {checkInterlocks, active, Machine{Config: interlocks, Now: func() time.Time { return time.Now().Add(time.Hour) }},
			"warning interlocks: restart-pending exists since \nwarning interlocks: applyinator-active exists, but no agent applies a plan"},
		"no interlocks": {checkInterlocks, nil, Machine{}, "skipped interlocks: not configured"},
		"two agents": {checkOtherAgents, agent("system-agent", "sentinel", "1"), Machine{},
			"problem other agents: 2 agents are running, PIDs 7, 8"},
		"the original too": {checkOtherAgents, agent("rancher-system-", "sentinel", "1"), Machine{},
			"problem other agents: 2 agents are running, PIDs 7, 8"},
		"one in a container": {checkOtherAgents, agent("system-agent", "run", "2"), Machine{}, "ok other agents: none"},
		"only commands":      {checkOtherAgents, agent("system-agent", "status", "1"), Machine{}, "ok other agents: none"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			test.m.Root = tree(t, test.files)
			test.m.setDefaults()
			got := render(test.run(t.Context(), test.m))
			if before, rest, found := strings.Cut(got, "since 2"); found && name == "interlocks left" {
				_, rest, _ = strings.Cut(rest, "\n")
				got = before + "since \n" + rest
			}
			if got != test.want {
				t.Errorf("got\n%s\nwant\n%s", got, test.want)
			}
		})
	}
}

// TestLocalPlanDirectory is about S8: a directory of plans in which others can write is found.
func TestLocalPlanDirectory(t *testing.T) {
	m := Machine{Root: tree(t, map[string]string{"var/plans/": ""}), ConfigFile: "/c", Config: config.Config{LocalEnabled: true,
		LocalPlanDirectory: "/var/plans"}}
	for mode, want := range map[os.FileMode]Verdict{0o700: OK, 0o755: OK, 0o775: Problem, 0o707: Problem} {
		if err := os.Chmod(m.path("var/plans"), mode); err != nil {
			t.Fatal(err)
		}
		if got := checkConfig(t.Context(), m)[1]; got.Verdict != want {
			t.Errorf("%o: %+v", mode, got)
		}
	}
	m.Config.LocalPlanDirectory = "/var/none"
	if got := render(checkConfig(t.Context(), m)); !strings.Contains(got, "warning local plans: /var/none: no such file") {
		t.Error(got)
	}
}

// TestPlanFiles: what the agent ignores of local plans is named.
func TestPlanFiles(t *testing.T) {
	for name, tc := range map[string]struct {
		files map[string]string
		want  string
	}{
		"none": {map[string]string{"p/": ""}, "ok plan files: 0 in /p"},
		"two": {map[string]string{"p/a.plan": "{}", "p/a.pos": "", "p/b/c.plan": "{", "p/.x/y.plan": "{}", "p/README": ""},
			"ok plan files: 2 in /p"},
		"of another name": {map[string]string{"p/first.json": "{}", "p/.a.plan": ""},
			"warning plan files: /p has no plan: the name of first.json does not end in .plan"},
		"mistyped": {map[string]string{"p/a.plan": `{"instruction":[]}`},
			"warning plan files: a.plan has a field \"instruction\", which has no effect\nok plan files: 1 in /p"},
	} {
		if got := render(Machine{Root: tree(t, tc.files)}.checkPlanFiles("/p")); got != tc.want {
			t.Errorf("%s: got\n%s\nwant\n%s", name, got, tc.want)
		}
	}
}

// A file system or a name server that hangs does not hide the other results.
func TestCheckThatHangs(t *testing.T) {
	hang := make(chan struct{})
	defer close(hang)
	c := check{"stuck", func(context.Context, Machine) []Result { <-hang; return nil }}
	if got := render(c.runWithTimeout(t.Context(), Machine{}, 20*time.Millisecond)); got != "warning stuck: no result within 20ms" {
		t.Errorf("got %s", got)
	}
}

// On the machine of the test every check returns complete results.
func TestRunOnThisMachine(t *testing.T) {
	results := Run(t.Context(), Machine{ConfigErr: errors.New("none"), ConfigFile: "/none"})
	if len(results) < len(checks)-3 {
		t.Errorf("got only\n%s", render(results))
	}
	for _, r := range results {
		if r.Check == "" || r.Verdict == "" || r.Message == "" || r.Verdict == Problem && r.Advice == "" {
			t.Errorf("incomplete: %+v", r)
		}
	}
	if Worst(results) != Problem {
		t.Error("an invalid configuration is not a problem")
	}
}
