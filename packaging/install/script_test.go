package install

import (
	"os/exec"
	"sort"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var cmpSorted = cmp.Transformer("sorted", func(in []string) []string {
	out := append([]string{}, in...)
	sort.Strings(out)
	return out
})

func TestScriptIsWhole(t *testing.T) {
	script, err := Script()
	if err != nil {
		t.Fatal(err)
	}
	for _, mark := range []string{"\n@include", "@missing"} {
		if strings.Contains(string(script), mark) {
			t.Errorf("The script holds %q", mark)
		}
	}
	if !strings.HasPrefix(string(script), "#!/bin/sh\n") {
		t.Error("The script does not begin with its interpreter")
	}
}

func TestScriptVars(t *testing.T) {
	hostile := "a'b\"c$(touch /tmp/x)`id`\\\nnext"
	script, err := Script(Var{"CATTLE_SERVER", hostile}, Var{"EMPTY", ""})
	if err != nil {
		t.Fatal(err)
	}
	head, _, _ := strings.Cut(string(script), "# Installs the system-agent")
	for set, want := range map[string]string{"": hostile, "mine": "mine"} {
		cmd := exec.Command(realProgram(t, "dash"), "-c", head+`printf '%s' "$CATTLE_SERVER${EMPTY-}"`)
		cmd.Env = []string{"CATTLE_SERVER=" + set}
		out, err := cmd.CombinedOutput()
		if err != nil || string(out) != want {
			t.Errorf("with %q set: %q, %v; want %q", set, out, err, want)
		}
	}
	for _, bad := range []Var{{"a-b", "x"}, {"", "x"}, {"A;id", "x"}, {"A", "x\x00"}} {
		if _, err := Script(bad); err == nil {
			t.Errorf("%v was accepted", bad)
		}
	}
}

// TestMetadataPastTheProxy: a proxy in the same cloud would get its own address. The public address is requested in the internet.
func TestMetadataPastTheProxy(t *testing.T) {
	for _, keyword := range keywords {
		m := newMachine(t)
		m.stub("curl", `case "$*" in *"--noproxy *"*) echo direct ;; *) echo proxied ;; esac`)
		want := "direct"
		if keyword == "ipify" {
			want = "proxied"
		}
		if got := eval(t, m, []string{"KEYWORD=" + keyword}, `resolve_address "$KEYWORD"`); got != want {
			t.Errorf("%s: got %q, want %q", keyword, got, want)
		}
	}
}

// TestAddressOfAnInterface: a Node keeps the address with which it was registered, and a temporary one of IPv6 is gone after some days. The
// kernel lists the newest address first.
func TestAddressOfAnInterface(t *testing.T) {
	const (
		four      = `1: lo    inet 10.0.0.5/24 brd 10.0.0.255 scope global lo\       valid_lft forever preferred_lft forever`
		temporary = `1: lo    inet6 2001:db8::dead/64 scope global temporary dynamic \       valid_lft 600000sec preferred_lft 80000sec`
		six       = `1: lo    inet6 2001:db8::5/64 scope global dynamic mngtmpaddr \       valid_lft 2591000sec preferred_lft 600000sec`
	)
	for want, lines := range map[string][]string{"10.0.0.5": {four, temporary, six}, "2001:db8::5": {temporary, temporary, six}} {
		m := newMachine(t)
		m.stub("ip", "cat <<'END'\n"+strings.Join(lines, "\n")+"\nEND")
		if got := eval(t, m, nil, "resolve_address lo"); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestLabels: under SELinux, files that are created later, such as the binaries of upgrades, get the label of their directory. That of
// /opt/rancher-system-agent/bin is by default the one of /opt, which is not that of programs.
func TestLabels(t *testing.T) {
	hub, m := newTestHub(t), newMachine(t)
	m.stub("restorecon", `[ -e "$2" ] && echo "restorecon $*" >>"$ROOT/calls"`)
	if out, ok := m.run(hub.script(t), nil, "--token", "secret", "--worker"); !ok {
		t.Fatalf("The script fails: %s", out)
	}
	for _, name := range []string{"usr", "usr/local", "usr/local/bin", "etc/rancher/agent", "var/lib/agent", "usr/local/bin/system-agent"} {
		if !strings.Contains(m.read("calls"), "restorecon -F "+m.path(name)+"\n") {
			t.Errorf("%s keeps the label of the directory above it", name)
		}
	}
}

func FuzzQuote(f *testing.F) {
	for _, seed := range []string{"", "'", "a b", "$(id)", "\n", "'\\''"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		// A word of the shell in single quotes: undoing what Quote does by hand must give s back.
		q := Quote(s)
		if strings.ReplaceAll(strings.TrimSuffix(strings.TrimPrefix(q, "'"), "'"), `'\''`, "'") != s && !strings.Contains(s, `'\''`) {
			t.Errorf("Quote(%q) = %s", s, q)
		}
		// Outside of quotes there is nothing but escaped single quotes.
		inside := false
		for i := 0; i < len(q); i++ {
			switch {
			case q[i] == '\'':
				inside = !inside
			case !inside && q[i] == '\\' && i+1 < len(q) && q[i+1] == '\'':
				i++
			case !inside:
				t.Fatalf("Quote(%q) = %s leaves %q outside of quotes", s, q, q[i])
			}
		}
		if inside {
			t.Fatalf("Quote(%q) = %s is not closed", s, q)
		}
	})
}

// TestWithoutAHub: an agent that gets its plans from files needs neither a hub nor the network, and a caller who has forgotten to say that
// there is no hub learns how.
func TestWithoutAHub(t *testing.T) {
	script, err := Script()
	if err != nil {
		t.Fatal(err)
	}
	m := newMachine(t)
	m.write("media/agent", agentBinary, 0o755)
	m.write("media/uninstall.sh", string(UninstallScript()), 0o755)
	env := []string{"CATTLE_LOCAL_ENABLED=true", "CATTLE_AGENT_BINARY_LOCAL=true",
		"CATTLE_AGENT_BINARY_LOCAL_LOCATION=" + m.path("media/agent"), "CATTLE_AGENT_UNINSTALL_LOCAL=true",
		"CATTLE_AGENT_UNINSTALL_LOCAL_LOCATION=" + m.path("media/uninstall.sh")}
	if out, ok := m.run(script, env); ok || !strings.Contains(out, "without a hub, set CATTLE_REMOTE_ENABLED=false") {
		t.Errorf("without a URL: success %t: %s", ok, out)
	}
	if out, ok := m.run(script, append(env, "CATTLE_REMOTE_ENABLED=false")); !ok {
		t.Errorf("the installation fails: %s", out)
	}
	config := m.read("etc/rancher/agent/config.yaml")
	for _, line := range []string{"remoteEnabled: false\n", "localEnabled: true\n",
		"localPlanDirectory: " + m.path("var/lib/agent/plans") + "\n"} {
		if !strings.Contains(config, line) {
			t.Errorf("the configuration has no %q:\n%s", line, config)
		}
	}
	if argv := m.read("argv"); argv != "" {
		t.Errorf("curl was called: %s", argv)
	}
}
