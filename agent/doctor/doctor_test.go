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

// tree makes a folder that stands for a machine's root; names that end in a slash are folders, "-> x" makes a link.
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

// see puts results into lines, for comparing.
func see(results []Result) string {
	var lines []string
	for _, r := range results {
		line := string(r.Verdict) + " " + r.Check + ": " + r.Seen
		if r.Verdict == Warning || r.Verdict == Problem {
			if r.Advice == "" {
				line += " (NO ADVICE)"
			}
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

func TestKernel(t *testing.T) {
	const cgroups = "#subsys_name\thierarchy\tnum_cgroups\tenabled\ncpu\t1\t1\t1\nmemory\t2\t1\t0\npids\t3\t1\t1\n"
	tests := map[string]struct {
		look  func(context.Context, Machine) []Result
		files map[string]string
		want  string
	}{
		"cgroups v2":                {checkCgroups, map[string]string{"sys/fs/cgroup/cgroup.controllers": "cpuset cpu io memory pids\n"}, "ok cgroups: version v2 with cpuset, cpu, io, memory, pids"},
		"cgroups v2 without pids":   {checkCgroups, map[string]string{"sys/fs/cgroup/cgroup.controllers": "cpu memory\n"}, "problem cgroups: version v2 without the controllers pids"},
		"cgroups v1 without memory": {checkCgroups, map[string]string{"proc/cgroups": cgroups}, "problem cgroups: version v1 without the controllers memory"},
		"cgroups v1":                {checkCgroups, map[string]string{"proc/cgroups": strings.ReplaceAll(cgroups, "\t0\n", "\t1\n")}, "warning cgroups: version v1"},
		"no cgroups":                {checkCgroups, nil, "skipped cgroups: neither /sys/fs/cgroup/cgroup.controllers nor /proc/cgroups tells anything"},
		"modules": {checkModules, map[string]string{"proc/filesystems": "nodev\toverlay\n", "proc/sys/kernel/osrelease": "6.1.0\n",
			"lib/modules/6.1.0/modules.dep": "kernel/net/bridge/br_netfilter.ko.xz: kernel/net/bridge/bridge.ko.xz\n"},
			"ok kernel module overlay: there\nok kernel module br_netfilter: not loaded; it is loaded when it is needed"},
		"no modules": {checkModules, nil, "warning kernel module overlay: not there: containers need it for their file systems\n" +
			"warning kernel module br_netfilter: not there: without it services cannot be reached from pods of the same machine"},
		"forwarding":        {checkForwarding, map[string]string{"proc/sys/net/ipv4/ip_forward": "1\n"}, "ok forwarding IPv4: on"},
		"no forwarding":     {checkForwarding, map[string]string{"proc/sys/net/ipv4/ip_forward": "0\n"}, "warning forwarding IPv4: off; RKE2 and k3s turn it on, and something may turn it off again"},
		"swap":              {checkSwap, map[string]string{"proc/swaps": "Filename\tType\n/dev/sda2\tpartition\n"}, "warning swap: 1 in use"},
		"no swap":           {checkSwap, map[string]string{"proc/swaps": "Filename\tType\n"}, "ok swap: none"},
		"SELinux":           {checkSecurity, map[string]string{"sys/fs/selinux/enforce": "1", "usr/share/selinux/packages/rke2.pp": ""}, "ok SELinux: enforcing, with a policy for RKE2 or k3s"},
		"SELinux, bare":     {checkSecurity, map[string]string{"sys/fs/selinux/enforce": "1"}, "warning SELinux: enforcing, and no policy for RKE2 or k3s is installed"},
		"AppArmor, bare":    {checkSecurity, map[string]string{"sys/module/apparmor/parameters/enabled": "Y\n"}, "warning AppArmor: on, and apparmor_parser is missing"},
		"no security moule": {checkSecurity, nil, "ok SELinux, AppArmor: neither is on"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := see(test.look(t.Context(), Machine{Root: tree(t, test.files)})); got != test.want {
				t.Errorf("got\n%s\nwant\n%s", got, test.want)
			}
		})
	}
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
		"fine":      {free(50<<30, 50, 0), "ok disk /var/lib/rancher/agent/work: 50.0 of 100.0 GiB free, 50% of inodes free"},
		"little":    {free(3<<30, 50, 0), "warning disk /var/lib/rancher/agent/work: 3.0 of 100.0 GiB free, 50% of inodes free"},
		"full":      {free(0, 50, 0), "problem disk /var/lib/rancher/agent/work: 0.0 of 100.0 GiB free, 50% of inodes free"},
		"no inodes": {free(50<<30, 0, 0), "problem disk /var/lib/rancher/agent/work: 50.0 of 100.0 GiB free, 0% of inodes free"},
		"read-only": {free(50<<30, 50, unix.ST_RDONLY), "problem disk /var/lib/rancher/agent/work: 50.0 of 100.0 GiB free, 50% of inodes free, read-only"},
		"broken":    {func(string, *unix.Statfs_t) error { return errors.New("input/output error") }, "problem disk /var/lib/rancher/agent/work: input/output error"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := Machine{Root: tree(t, nil), Statfs: test.statfs, Config: config.Config{WorkDirectory: "/var/lib/rancher/agent/work"}}
			if got := see(checkDisk(t.Context(), m)); got != test.want {
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
		"runs":       {booted, show, nil, "ok service: active (running), enabled"},
		"failed":     {booted, strings.Replace(show, "active\nSubState=running", "failed\nSubState=failed", 1), nil, "problem service: failed (failed), enabled"},
		"no unit":    {booted, "LoadState=not-found\nActiveState=inactive\n", nil, "problem service: the unit rancher-system-agent is not installed"},
		"loops":      {booted, strings.Replace(show, "NRestarts=0", "NRestarts=1800", 1), nil, "warning service: active (running), enabled, started anew 1800 times"},
		"disabled":   {booted, strings.Replace(show, "enabled", "disabled", 1), nil, "warning service: active (running), disabled"},
		"no systemd": {nil, "", nil, "warning service: this machine was not started by systemd"},
		"no manager": {booted, "", errors.New("no bus"), "skipped service: systemctl does not answer: no bus"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := Machine{Root: tree(t, test.files), Run: func(context.Context, string, ...string) (string, error) { return test.show, test.err }}
			if got := see(checkService(t.Context(), m)); got != test.want {
				t.Errorf("got\n%s\nwant\n%s", got, test.want)
			}
		})
	}
}

func TestAgent(t *testing.T) {
	now := time.Date(2026, 11, 21, 3, 0, 0, 0, time.UTC)
	applies := &control.Status{Version: "v1", PID: 7, Sources: []engine.State{{Source: "hub", Doing: engine.DoingApply, Contacted: true}}}
	away := &control.Status{Sources: []engine.State{{Source: "hub", Contacted: true, SourceError: "connection refused", SourceErrorSince: now.Add(-time.Hour)}, {Source: "local/a"}}}
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
		look  func(context.Context, Machine) []Result
		files map[string]string
		m     Machine
		want  string
	}{
		"answers":            {checkAgent, nil, Machine{Agent: applies}, "ok agent: version v1 runs as process 7"},
		"is away":            {checkAgent, nil, Machine{AgentErr: control.ErrNotRunning}, "problem agent: no agent answers"},
		"no configuration":   {checkAgent, nil, Machine{ConfigErr: errors.New("x")}, "skipped agent: without a configuration it is not known where to ask"},
		"contact":            {checkContact, nil, Machine{Agent: away}, "problem contact with hub: lost since 2026-11-21T02:00:00Z: connection refused\nwarning contact with local/a: none yet since the agent started (NO ADVICE)"},
		"interlocks at work": {checkInterlocks, map[string]string{"var/interlock/applyinator-active": ""}, Machine{Config: interlocks, Agent: applies}, "ok interlocks: none left behind"},
		"interlocks left": {checkInterlocks, active, Machine{Config: interlocks, Now: func() time.Time { return time.Now().Add(time.Hour) }},
			"warning interlocks: restart-pending is there since \nwarning interlocks: applyinator-active is there, and no agent applies a plan"},
		"no interlocks":      {checkInterlocks, nil, Machine{}, "skipped interlocks: not used"},
		"two agents":         {checkOthers, agent("system-agent", "sentinel", "1"), Machine{}, "problem other agents: 2 agents run, processes 7, 8"},
		"the original too":   {checkOthers, agent("rancher-system-", "sentinel", "1"), Machine{}, "problem other agents: 2 agents run, processes 7, 8"},
		"one in a container": {checkOthers, agent("system-agent", "run", "2"), Machine{}, "ok other agents: none"},
		"only commands":      {checkOthers, agent("system-agent", "status", "1"), Machine{}, "ok other agents: none"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			test.m.Root = tree(t, test.files)
			test.m.defaults()
			got := see(test.look(t.Context(), test.m))
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

// TestLocalPlanFolder is about S8: a folder of plans in which somebody else can write is found.
func TestLocalPlanFolder(t *testing.T) {
	m := Machine{Root: tree(t, map[string]string{"var/plans/": ""}), ConfigFile: "/c", Config: config.Config{LocalEnabled: true, LocalPlanDirectory: "/var/plans"}}
	for mode, want := range map[os.FileMode]Verdict{0o700: OK, 0o755: OK, 0o775: Problem, 0o707: Problem} {
		if err := os.Chmod(m.path("var/plans"), mode); err != nil {
			t.Fatal(err)
		}
		if got := checkConfig(t.Context(), m)[1]; got.Verdict != want {
			t.Errorf("%o: %+v", mode, got)
		}
	}
	m.Config.LocalPlanDirectory = "/var/none"
	if got := see(checkConfig(t.Context(), m)); !strings.Contains(got, "warning local plans: /var/none: no such file") {
		t.Error(got)
	}
}

// A file system or a name server that hangs keeps nobody waiting for the other answers.
func TestCheckThatHangs(t *testing.T) {
	hang := make(chan struct{})
	defer close(hang)
	c := check{"stuck", func(context.Context, Machine) []Result { <-hang; return nil }}
	if got := see(c.within(t.Context(), Machine{}, 20*time.Millisecond)); got != "warning stuck: no answer within 20ms" {
		t.Errorf("got %s", got)
	}
}

// On the machine that runs the test every check has an answer, and none of them panics.
func TestExamineThisMachine(t *testing.T) {
	results := Examine(t.Context(), Machine{ConfigErr: errors.New("none"), ConfigFile: "/none"})
	if len(results) < len(checks)-3 {
		t.Errorf("got only\n%s", see(results))
	}
	for _, r := range results {
		if r.Check == "" || r.Verdict == "" || r.Seen == "" || r.Verdict == Problem && r.Advice == "" {
			t.Errorf("incomplete: %+v", r)
		}
	}
	if Worst(results) != Problem {
		t.Error("a configuration that cannot be read is no problem")
	}
}
