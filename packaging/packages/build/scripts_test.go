package build

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// system is a directory that stands for the root of a system, with programs that write down how they are called.
type system struct {
	t    *testing.T
	root string
	env  []string
}

// fakes are the programs. Files in the root say what they answer.
var fakes = map[string]string{
	"systemctl": `echo "systemctl $*" >>"$ROOT/calls"
case "$*" in
*is-active*) [ -e "$ROOT/active" ] ;;
*is-enabled*) [ -e "$ROOT/enabled" ] ;;
"reload "*) [ ! -e "$ROOT/no-reload" ] ;;
"start "*) : >"$ROOT/active" ;;
"preset "*) : >"$ROOT/enabled" ;;
"disable --now "*) rm -f "$ROOT/active" "$ROOT/enabled" ;;
"disable "*) rm -f "$ROOT/enabled" ;;
esac`,
	// deb-systemd-invoke follows the policy of the system, as that of Debian does.
	"deb-systemd-invoke": `echo "deb-systemd-invoke $*" >>"$ROOT/calls"
[ ! -e "$ROOT/policy-denies" ] || exit 0
case $1 in reload) [ ! -e "$ROOT/no-reload" ] ;; esac`,
	"deb-systemd-helper": `echo "deb-systemd-helper $*" >>"$ROOT/calls"
case "$*" in *was-enabled*) [ ! -e "$ROOT/disabled" ] ;; *debian-installed*) [ -e "$ROOT/debian-installed" ] ;; esac`,
	"systemd-sysusers": `echo "systemd-sysusers $*" >>"$ROOT/calls"`,
}

func newSystem(t *testing.T, present ...string) *system {
	t.Helper()
	s := &system{t: t, root: t.TempDir()}
	s.env = []string{"ROOT=" + s.root, "PATH=" + s.path("bin") + ":/usr/bin:/bin"}
	for name, body := range fakes {
		s.write("bin/"+name, "#!/bin/sh\n"+body+"\n")
	}
	s.write("run/systemd/system/file", "")
	s.write("etc/rancher/agent/machine-secret", "secret")
	for _, name := range present {
		s.write(name, "")
	}
	return s
}

func (s *system) path(name string) string { return filepath.Join(s.root, name) }

func (s *system) write(name, text string) {
	s.t.Helper()
	if err := os.MkdirAll(filepath.Dir(s.path(name)), 0o755); err != nil {
		s.t.Fatal(err)
	}
	if err := os.WriteFile(s.path(name), []byte(text), 0o755); err != nil {
		s.t.Fatal(err)
	}
}

func (s *system) exists(name string) bool {
	_, err := os.Lstat(s.path(name))
	return err == nil
}

// configured registers the machine.
func (s *system) configured() {
	s.write("etc/rancher/agent/config.yaml", "interlockDirectory: "+s.path("srv/interlock")+"\nremoteEnabled: true\n")
}

// run runs scripts of a package under dash, as the package manager does: "deb.postinst configure". It returns the calls of programs.
func (s *system) run(name string, scripts ...string) (calls, printed string) {
	s.t.Helper()
	_ = os.Remove(s.path("calls"))
	var out bytes.Buffer
	for _, line := range scripts {
		f := strings.Split(line, " ")
		text, err := Script(name, f[0], s.root)
		if err != nil {
			s.t.Fatal(err)
		}
		cmd := exec.Command("dash", append([]string{"-s", "--"}, f[1:]...)...)
		if strings.HasPrefix(f[0], "rpm.") {
			// rpm runs its scripts so.
			cmd.Args = append([]string{"dash", "-eu", "-s", "--"}, f[1:]...)
		}
		cmd.Stdin, cmd.Env, cmd.Stdout, cmd.Stderr = bytes.NewReader(text), s.env, &out, &out
		if err := cmd.Run(); err != nil {
			s.t.Errorf("%s fails: %v\n%s", line, err, out.String())
		}
	}
	raw, err := os.ReadFile(s.path("calls"))
	if err != nil && !os.IsNotExist(err) {
		s.t.Fatal(err)
	}
	calls = strings.NewReplacer(" rancher-system-agent.service", " AGENT", " drover-hub.service", " HUB").Replace(string(raw))
	return calls, out.String()
}

// The calls by which Debian's helper enables a unit.
const (
	enabledAgent = "deb-systemd-helper unmask AGENT\ndeb-systemd-helper --quiet was-enabled AGENT\ndeb-systemd-helper enable AGENT\n"
	reloadUnits  = "systemctl daemon-reload\n"
	isActive     = "systemctl --quiet is-active AGENT\n"
	presetTwice  = "systemctl preset AGENT\nsystemctl preset AGENT\n"
)

// TestAgentScripts has a row for each moment in the life of a package. An upgrade runs the scripts of the old and of the new version, in
// the order in which dpkg and rpm do.
func TestAgentScripts(t *testing.T) {
	var (
		debInstall = []string{"deb.preinst install", "deb.postinst configure "}
		debUpgrade = []string{"deb.prerm upgrade 2-1", "deb.preinst upgrade 1-1", "deb.postrm upgrade 2-1", "deb.postinst configure 1-1"}
		debRemove  = []string{"deb.prerm remove", "deb.postrm remove"}
		debAgain   = []string{"deb.preinst install 1-1", "deb.postinst configure 1-1"}
		rpmInstall = []string{"rpm.post 1", "rpm.posttrans 1"}
		rpmUpgrade = []string{"rpm.post 2", "rpm.preun 1", "rpm.postun 1", "rpm.posttrans 1"}
		rpmRemove  = []string{"rpm.preun 0", "rpm.postun 0"}
	)
	for _, test := range []struct {
		name         string
		scripts      []string
		unregistered bool
		// present are files of the system.
		present []string
		// chroot takes the running systemd away.
		chroot bool
		env    string
		want   string
	}{
		{name: "deb: install", scripts: debInstall, unregistered: true, want: enabledAgent + reloadUnits},
		{name: "deb: install on a registered machine", scripts: debInstall,
			want: enabledAgent + reloadUnits + isActive + "deb-systemd-invoke start AGENT\n"},
		{name: "deb: install while the agent of a replaced package runs", scripts: debInstall, present: []string{"active"},
			want: enabledAgent + reloadUnits + isActive + "deb-systemd-invoke restart AGENT\n"},
		{name: "deb: the same while that applies a plan", scripts: debInstall, present: []string{"active", "srv/interlock/applyinator-active"},
			want: enabledAgent + reloadUnits + isActive},
		{name: "deb: install in a chroot", scripts: debInstall, chroot: true, want: enabledAgent},
		{name: "deb: upgrade", scripts: debUpgrade, present: []string{"active"},
			want: enabledAgent + reloadUnits + isActive + "deb-systemd-invoke reload AGENT\n"},
		{name: "deb: upgrade of a stopped agent", scripts: debUpgrade, want: enabledAgent + reloadUnits + isActive},
		{name: "deb: upgrade of a disabled agent", scripts: debUpgrade, present: []string{"active", "disabled"},
			want: "deb-systemd-helper unmask AGENT\ndeb-systemd-helper --quiet was-enabled AGENT\ndeb-systemd-helper update-state AGENT\n" +
				reloadUnits + isActive + "deb-systemd-invoke reload AGENT\n"},
		{name: "deb: upgrade in a chroot", scripts: debUpgrade, present: []string{"active"}, chroot: true, want: enabledAgent},
		{name: "deb: upgrade of an agent without reload", scripts: debUpgrade, present: []string{"active", "no-reload"},
			want: enabledAgent + reloadUnits + isActive + "deb-systemd-invoke reload AGENT\nsystemctl --no-block try-restart AGENT\n"},
		{name: "deb: the same while it applies a plan", scripts: debUpgrade,
			present: []string{"active", "no-reload", "srv/interlock/applyinator-active"},
			want:    enabledAgent + reloadUnits + isActive + "deb-systemd-invoke reload AGENT\n"},
		{name: "deb: upgrade where the policy denies it", scripts: debUpgrade, present: []string{"active", "no-reload", "policy-denies"},
			want: enabledAgent + reloadUnits + isActive + "deb-systemd-invoke reload AGENT\n"},
		{name: "deb: failed upgrade", scripts: []string{"deb.prerm upgrade 2-1", "deb.postinst abort-upgrade 2-1"}, present: []string{"active"},
			want: enabledAgent + reloadUnits + isActive + "deb-systemd-invoke reload AGENT\n"},
		{name: "deb: remove", scripts: debRemove, present: []string{"active"}, want: "deb-systemd-invoke stop AGENT\n" + reloadUnits},
		{name: "deb: remove in a chroot", scripts: debRemove, chroot: true, want: ""},
		{name: "deb: failed remove", scripts: []string{"deb.prerm remove", "deb.postinst abort-remove"},
			want: "deb-systemd-invoke stop AGENT\n" + enabledAgent + reloadUnits + isActive + "deb-systemd-invoke start AGENT\n"},
		{name: "deb: reinstall", scripts: debAgain, want: enabledAgent + reloadUnits + isActive + "deb-systemd-invoke start AGENT\n"},
		{name: "deb: purge", scripts: []string{"deb.postrm purge"},
			want: "deb-systemd-helper purge AGENT\ndeb-systemd-helper unmask AGENT\n" + reloadUnits},
		{name: "deb: trigger", scripts: []string{"deb.postinst triggered x"}, want: ""},
		{name: "rpm: install", scripts: rpmInstall, unregistered: true, want: presetTwice + reloadUnits},
		{name: "rpm: install on a registered machine", scripts: rpmInstall,
			want: presetTwice + reloadUnits + isActive + "systemctl start AGENT\n"},
		{name: "rpm: install while the agent of a replaced package runs, whose scripts do not stop it", scripts: rpmInstall,
			present: []string{"active"}, want: presetTwice + reloadUnits + isActive + "systemctl restart AGENT\n"},
		{name: "rpm: install in a chroot", scripts: rpmInstall, chroot: true, want: presetTwice},
		{name: "rpm: install in a transactional-update", scripts: rpmInstall, env: "TRANSACTIONAL_UPDATE=true", want: presetTwice},
		{name: "rpm: upgrade", scripts: rpmUpgrade, present: []string{"active"}, want: reloadUnits + isActive + "systemctl reload AGENT\n"},
		{name: "rpm: upgrade of a stopped agent", scripts: rpmUpgrade, want: reloadUnits + isActive},
		{name: "rpm: upgrade in a chroot", scripts: rpmUpgrade, present: []string{"active"}, chroot: true, want: ""},
		{name: "rpm: upgrade in a transactional-update", scripts: rpmUpgrade, present: []string{"active"},
			env: "TRANSACTIONAL_UPDATE=true", want: ""},
		{name: "rpm: upgrade of an agent without reload", scripts: rpmUpgrade, present: []string{"active", "no-reload"},
			want: reloadUnits + isActive + "systemctl reload AGENT\nsystemctl --no-block try-restart AGENT\n"},
		{name: "rpm: remove", scripts: rpmRemove, present: []string{"active"}, want: "systemctl disable --now AGENT\n" + reloadUnits},
		{name: "rpm: remove in a chroot", scripts: rpmRemove, chroot: true, want: "systemctl disable AGENT\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newSystem(t, test.present...)
			if !test.unregistered {
				s.configured()
			}
			if test.chroot {
				_ = os.RemoveAll(s.path("run/systemd"))
			}
			s.env = append(s.env, test.env)
			calls, _ := s.run(agentName, test.scripts...)
			if diff := cmp.Diff(test.want, calls); diff != "" {
				t.Errorf("calls (-want +got):\n%s", diff)
			}
			if left, _ := filepath.Glob(s.path("run/drover*")); len(left) > 0 || s.exists("srv/interlock/restart-pending") {
				t.Errorf("left: %v", left)
			}
			if !s.exists("etc/rancher/agent/machine-secret") {
				t.Error("The identity of the machine was removed")
			}
		})
	}
}

// TestReplacedAgent has rpm replace a package with a unit of the same name, as it does: the post of the new package comes first, then the
// scripts of the old one disable and stop the unit.
func TestReplacedAgent(t *testing.T) {
	s := newSystem(t, "active", "enabled")
	s.configured()
	_, _ = s.run(agentName, "rpm.post 1")
	_, _ = s.run(agentName, "rpm.preun 0", "rpm.postun 0") // of the old package; its scripts do the same
	if s.exists("active") || s.exists("enabled") {
		t.Fatal("the scripts of the old package do not stop the agent")
	}
	_, _ = s.run(agentName, "rpm.posttrans 1")
	if !s.exists("active") || !s.exists("enabled") {
		t.Errorf("the agent runs: %v, is enabled: %v", s.exists("active"), s.exists("enabled"))
	}
}

// TestAgentInterlock has an agent that begins a plan at the moment in which the upgrade looks: it finds the announcement.
func TestAgentInterlock(t *testing.T) {
	s := newSystem(t, "active", "no-reload", "srv/interlock/file")
	s.configured()
	s.write("bin/systemctl", "#!/bin/sh\necho \"systemctl $*\" >>\"$ROOT/calls\"\ncase \"$*\" in *try-restart*) "+
		"[ -e \"$ROOT/srv/interlock/restart-pending\" ] && echo announced >>\"$ROOT/calls\" ;; esac\n")
	calls, _ := s.run(agentName, "deb.postinst configure 1-1")
	if !strings.HasSuffix(calls, "systemctl --no-block try-restart AGENT\nannounced\n") || s.exists("srv/interlock/restart-pending") {
		t.Errorf("calls:\n%s", calls)
	}
}

// TestUnmanagedAgent has an agent of the install script, which the package must not touch.
func TestUnmanagedAgent(t *testing.T) {
	for _, script := range []string{"deb.postinst configure ", "deb.postinst configure 1-1", "deb.prerm remove", "deb.postrm purge",
		"rpm.post 1",
		"rpm.post 2",
		"rpm.preun 0"} {
		s := newSystem(t, "active", "etc/systemd/system/rancher-system-agent.service", "var/lib/rancher/agent/file")
		s.configured()
		s.env = append(s.env, "DROVER_PURGE=1")
		calls, printed := s.run(agentName, script)
		if strings.ReplaceAll(calls, reloadUnits, "") != "" || !s.exists("var/lib/rancher/agent/file") {
			t.Errorf("%s calls:\n%s", script, calls)
		}
		installs := strings.HasPrefix(script, "deb.postinst") || strings.HasPrefix(script, "rpm.post ")
		if installs && !strings.Contains(printed, "rancher-system-agent join") {
			t.Errorf("%s prints %q", script, printed)
		}
	}
}

// TestDroverPurge removes the data only if the administrator says so, and never those of a distribution.
func TestDroverPurge(t *testing.T) {
	for _, test := range []struct{ name, dir, env string }{
		{agentName, "var/lib/rancher/agent", ""}, {agentName, "var/lib/rancher/agent", "DROVER_PURGE=1"},
		{hubName, "var/lib/drover", ""}, {hubName, "var/lib/drover", "DROVER_PURGE=1"},
	} {
		s := newSystem(t, test.dir+"/file", "var/lib/rancher/rke2/file", "etc/rancher/rke2/config.yaml")
		s.env = append(s.env, test.env)
		_, _ = s.run(test.name, "deb.postrm purge")
		if s.exists(test.dir) != (test.env == "") {
			t.Errorf("%s %s: %s exists: %v", test.name, test.env, test.dir, s.exists(test.dir))
		}
		if !s.exists("var/lib/rancher/rke2/file") || !s.exists("etc/rancher/rke2/config.yaml") {
			t.Errorf("%s %s removes a distribution", test.name, test.env)
		}
	}
}

func TestHubScripts(t *testing.T) {
	const active = "systemctl --quiet is-active HUB\n"
	for _, test := range []struct {
		name    string
		scripts []string
		present []string
		chroot  bool
		want    string
	}{
		{name: "deb: install", scripts: []string{"deb.preinst install", "deb.postinst configure "},
			want: "systemd-sysusers drover-hub.conf\ndeb-systemd-helper debian-installed HUB\ndeb-systemd-helper update-state HUB\n" +
				reloadUnits + active + "systemctl --quiet is-enabled HUB\n"},
		{name: "deb: install after a removal", scripts: []string{"deb.preinst install 1-1", "deb.postinst configure 1-1"},
			present: []string{"enabled", "debian-installed"},
			want: "systemd-sysusers drover-hub.conf\ndeb-systemd-helper debian-installed HUB\ndeb-systemd-helper unmask HUB\n" +
				"deb-systemd-helper --quiet was-enabled HUB\ndeb-systemd-helper enable HUB\n" + reloadUnits + active +
				"systemctl --quiet is-enabled HUB\ndeb-systemd-invoke start HUB\n"},
		{name: "deb: upgrade of a hub that is stopped", scripts: []string{"deb.prerm upgrade 2-1", "deb.preinst upgrade 1-1",
			"deb.postinst configure 1-1"}, present: []string{"enabled", "debian-installed"},
			want: "systemd-sysusers drover-hub.conf\ndeb-systemd-helper debian-installed HUB\ndeb-systemd-helper unmask HUB\n" +
				"deb-systemd-helper --quiet was-enabled HUB\ndeb-systemd-helper enable HUB\n" + reloadUnits + active},
		{name: "deb: install in a chroot", scripts: []string{"deb.preinst install", "deb.postinst configure "}, chroot: true,
			want: "systemd-sysusers drover-hub.conf\n" +
				"deb-systemd-helper debian-installed HUB\ndeb-systemd-helper update-state HUB\n"},
		{name: "deb: upgrade", scripts: []string{"deb.prerm upgrade 2-1", "deb.postinst configure 1-1"},
			present: []string{"active", "debian-installed"},
			want: "systemd-sysusers drover-hub.conf\ndeb-systemd-helper debian-installed HUB\ndeb-systemd-helper unmask HUB\n" +
				"deb-systemd-helper --quiet was-enabled HUB\ndeb-systemd-helper enable HUB\n" + reloadUnits + active +
				"deb-systemd-invoke restart HUB\n"},
		{name: "deb: remove", scripts: []string{"deb.prerm remove", "deb.postrm remove"}, want: "deb-systemd-invoke stop HUB\n" + reloadUnits},
		{name: "rpm: install", scripts: []string{"rpm.post 1", "rpm.posttrans 1"},
			want: "systemd-sysusers drover-hub.conf\nsystemctl preset HUB\n" + reloadUnits},
		{name: "rpm: upgrade", scripts: []string{"rpm.post 2", "rpm.preun 1", "rpm.postun 1", "rpm.posttrans 1"}, present: []string{"active"},
			want: "systemd-sysusers drover-hub.conf\n" + reloadUnits + "systemctl try-restart HUB\n"},
		{name: "rpm: remove", scripts: []string{"rpm.preun 0", "rpm.postun 0"}, want: "systemctl disable --now HUB\n" + reloadUnits},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newSystem(t, test.present...)
			if test.chroot {
				_ = os.RemoveAll(s.path("run/systemd"))
			}
			calls, _ := s.run(hubName, test.scripts...)
			if diff := cmp.Diff(test.want, calls); diff != "" {
				t.Errorf("calls (-want +got):\n%s", diff)
			}
		})
	}
}

// TestShellcheck checks the scripts as they are in the packages.
func TestShellcheck(t *testing.T) {
	for name, service := range services {
		entries, err := embedded.ReadDir("files/scripts/" + service.scripts)
		if err != nil {
			t.Fatal(err)
		}
		for _, entry := range entries {
			text, err := Script(name, entry.Name(), "")
			if err != nil {
				t.Fatal(err)
			}
			if bytes.Contains(text, []byte("@")) && !bytes.Contains(text, []byte(`"$@"`)) {
				t.Errorf("%s %s: left in the script: @", name, entry.Name())
			}
			// Parts define functions that not every script uses.
			cmd := exec.Command("shellcheck", "--shell=sh", "--exclude=SC2317,SC2034", "-")
			cmd.Stdin = bytes.NewReader(text)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%s %s: %v\n%s", name, entry.Name(), err, out)
			}
		}
	}
}
