package build

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/drover-dev/drover/packaging/install"
)

// agentFiles is what the package of the agent contains, manual pages left out: mode, path, and where a link leads to.
var agentFiles = strings.Split(`-rw-r--r-- /etc/@env@/rancher-system-agent
-rw-r--r-- /etc/needrestart/conf.d/drover-agent.conf
drwx------ /etc/rancher/agent
lrwxrwxrwx /usr/bin/drover-agent -> rancher-system-agent
-rwxr-xr-x /usr/bin/rancher-system-agent
lrwxrwxrwx /usr/bin/system-agent -> rancher-system-agent
-rw-r--r-- /usr/lib/rancher-system-agent/packaged
-rw-r--r-- /usr/lib/systemd/system-preset/90-drover-agent.preset
-rw-r--r-- /usr/lib/systemd/system/rancher-system-agent.service
-rw-r--r-- /usr/share/bash-completion/completions/system-agent
-rw-r--r-- /usr/share/fish/vendor_completions.d/system-agent.fish
-rw-r--r-- /usr/share/zsh/@zsh@/_system-agent`, "\n")

var hubFiles = strings.Split(`-rw-r--r-- /etc/@env@/drover-hub
-rwxr-xr-x /usr/bin/hub
-rwxr-xr-x /usr/lib/drover/assets/system-agent-amd64
-rw-r--r-- /usr/lib/drover/assets/system-agent-amd64.sha256
-rwxr-xr-x /usr/lib/drover/assets/system-agent-arm64
-rw-r--r-- /usr/lib/drover/assets/system-agent-arm64.sha256
-rw-r--r-- /usr/lib/systemd/system-preset/90-drover-hub.preset
-rw-r--r-- /usr/lib/systemd/system/drover-hub.service
-rw-r--r-- /usr/lib/sysusers.d/drover-hub.conf
-rw-r--r-- /usr/share/bash-completion/completions/hub
-rw-r--r-- /usr/share/fish/vendor_completions.d/hub.fish
-rw-r--r-- /usr/share/zsh/@zsh@/_hub`, "\n")

// contents lists a package with the tool of its format: everything belongs to root.
func contents(t *testing.T, path string) []string {
	t.Helper()
	var found []string
	add := func(mode, owner, name string, rest []string) {
		name = "/" + strings.Trim(strings.TrimPrefix(name, "."), "/")
		if owner != "root/root" {
			t.Errorf("%s belongs to %s", name, owner)
		}
		// Directories that other packages have, too.
		if mode == "drwxr-xr-x" || strings.HasPrefix(name, "/usr/share/man/") || strings.HasPrefix(name, "/usr/share/doc/") ||
			strings.HasPrefix(name, "/usr/share/lintian/") || strings.HasPrefix(name, "/usr/share/licenses/") {
			return
		}
		if len(rest) == 2 {
			mode, name = "lrwxrwxrwx", name+" -> "+rest[1]
		}
		found = append(found, mode+" "+name)
	}
	if strings.HasSuffix(path, ".deb") {
		for line := range strings.Lines(output(t, "dpkg-deb", "-c", path)) {
			f := strings.Fields(line)
			add(f[0], f[1], f[5], f[6:])
		}
	} else {
		for line := range strings.Lines(output(t, "rpm", "-qp", "--queryformat",
			`[%{FILEMODES:perms} %{FILEUSERNAME}/%{FILEGROUPNAME} %{FILENAMES} -> %{FILELINKTOS}\n]`, path)) {
			f := strings.Fields(line)
			rest := f[3:]
			if len(rest) == 1 {
				rest = nil
			}
			add(f[0], f[1], f[2], rest)
		}
	}
	slices.Sort(found)
	return found
}

func TestContents(t *testing.T) {
	for _, path := range made(t) {
		want := agentFiles
		if strings.Contains(path, hubName) {
			want = hubFiles
		}
		env, zsh := "default", "vendor-completions"
		if strings.HasSuffix(path, ".rpm") {
			env, zsh = "sysconfig", "site-functions"
		}
		var expected []string
		for _, line := range want {
			expected = append(expected, strings.NewReplacer("@env@", env, "@zsh@", zsh).Replace(line))
		}
		slices.Sort(expected)
		if got := contents(t, path); !slices.Equal(got, expected) {
			t.Errorf("%s contains\n%s\nwant\n%s", filepath.Base(path), strings.Join(got, "\n"), strings.Join(expected, "\n"))
		}
	}
}

// TestRecommends: a machine that gets the agent from a package can register.
func TestRecommends(t *testing.T) {
	o := options(t)
	o.Names, o.Arches = []string{agentName}, []string{"amd64"}
	for _, path := range packages(t, o) {
		query := []string{"rpm", "-qp", "--recommends", path}
		if strings.HasSuffix(path, ".deb") {
			query = []string{"dpkg-deb", "-f", path, "Recommends"}
		}
		if got := output(t, query[0], query[1:]...); !strings.Contains(got, "curl") {
			t.Errorf("%s recommends %q", filepath.Base(path), got)
		}
	}
}

// TestDebFiles unpacks the deb packages and compares what has its source elsewhere.
func TestDebFiles(t *testing.T) {
	root := t.TempDir()
	for _, path := range made(t) {
		if strings.HasSuffix(path, "_amd64.deb") {
			output(t, "dpkg-deb", "-x", path, root)
		}
	}
	read := func(name string) string {
		t.Helper()
		raw, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	if read("usr/lib/systemd/system/rancher-system-agent.service") != string(install.PackagedUnit()) {
		t.Error("The unit of the agent is not that of the install script's package")
	}
	if got := read("usr/share/bash-completion/completions/system-agent"); got != "# completion bash\n" {
		t.Errorf("completion: %q", got)
	}
	if !strings.Contains(read("usr/lib/rancher-system-agent/packaged"), "\nprogram=/usr/bin/rancher-system-agent\n") {
		t.Error("The marker does not name the program")
	}
	unit := read("usr/lib/systemd/system/drover-hub.service")
	for _, line := range []string{"User=drover", "StateDirectory=drover drover/hub", "NoNewPrivileges=yes", "ProtectSystem=strict",
		"CapabilityBoundingSet=", "KillMode=mixed", "TimerSlackNSec=50ms", "OOMPolicy=continue",
		"ExecStart=/usr/bin/hub serve --data-dir /var/lib/drover/hub --assets-dir " + assets + " $HUB_FLAGS"} {
		if !strings.Contains(unit, "\n"+line+"\n") {
			t.Errorf("The unit of the hub lacks %s", line)
		}
	}
	pages, err := filepath.Glob("../../man/*.1")
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range pages {
		want, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		if got := output(t, "gzip", "-dc", filepath.Join(root, "usr/share/man/man1", filepath.Base(page)+".gz")); got != string(want) {
			t.Errorf("%s is not in a package", page)
		}
	}
}

// TestLicenses reads the licenses of what is compiled into the programs.
func TestLicenses(t *testing.T) {
	for _, path := range made(t) {
		root, name := t.TempDir(), agentName
		if strings.Contains(path, hubName) {
			name = hubName
		}
		var text string
		if strings.HasSuffix(path, ".deb") {
			output(t, "dpkg-deb", "-x", path, root)
			text = output(t, "gzip", "-dc", filepath.Join(root, "usr/share/doc", name, "THIRD_PARTY_NOTICES.gz"))
			raw, err := os.ReadFile(filepath.Join(root, "usr/share/doc", name, "copyright"))
			if err != nil || !strings.Contains(string(raw), "THIRD_PARTY_NOTICES.gz") {
				t.Errorf("%s: the copyright does not name the file: %v\n%s", filepath.Base(path), err, raw)
			}
		} else {
			output(t, "sh", "-c", `rpm2archive - <"$1" | tar -xz -C "$2"`, "sh", path, root)
			dir := "/usr/share/licenses/" + name + "/"
			raw, err := os.ReadFile(filepath.Join(root, dir, "THIRD_PARTY_NOTICES"))
			if err != nil {
				t.Fatal(err)
			}
			text = string(raw)
			listed := strings.Fields(output(t, "rpm", "-qp", "--licensefiles", path))
			if want := []string{dir + "LICENSE", dir + "THIRD_PARTY_NOTICES"}; !slices.Equal(listed, want) {
				t.Errorf("%s: licenses are %v, want %v", filepath.Base(path), listed, want)
			}
		}
		for _, want := range []string{"\nGo standard library " + runtime.Version() + " (LICENSE)\n", "\ngithub.com/google/go-cmp v0."} {
			if strings.Count(text, want) != 1 {
				t.Errorf("%s: %q is missing in\n%s", filepath.Base(path), want, text)
			}
		}
	}
}

// TestConfigurationFiles are those that the package managers leave to the administrator.
func TestConfigurationFiles(t *testing.T) {
	o := options(t)
	o.Names, o.Arches = []string{agentName}, []string{"arm64"}
	for _, path := range packages(t, o) {
		var got []string
		want := []string{"/etc/needrestart/conf.d/drover-agent.conf", "/etc/sysconfig/rancher-system-agent"}
		if strings.HasSuffix(path, ".deb") {
			got = strings.Fields(output(t, "dpkg-deb", "-I", path, "conffiles"))
			want = []string{"/etc/default/rancher-system-agent", "/etc/needrestart/conf.d/drover-agent.conf"}
		} else {
			got = strings.Fields(output(t, "rpm", "-qpc", path))
			for line := range strings.Lines(output(t, "rpm", "-qp", "--queryformat", `[%{FILEFLAGS:fflags} %{FILENAMES}\n]`, path)) {
				if f := strings.Fields(line); len(f) == 2 && slices.Contains(want, f[1]) && f[0] != "cn" {
					t.Errorf("%s has the flags %s, want config and noreplace", f[1], f[0])
				}
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", filepath.Base(path), got, want)
		}
	}
}
