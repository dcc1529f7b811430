package build

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// programs builds a small program for each architecture once, where the Makefile puts agent and hub.
var programs = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "drover-programs-")
	if err != nil {
		return "", err
	}
	bin := filepath.Join(dir, "bin")
	if err := os.Mkdir(bin, 0o755); err != nil {
		return bin, err
	}
	for _, arch := range Arches {
		hub, agent := filepath.Join(bin, "linux-"+arch, "hub"), filepath.Join(bin, "assets", "system-agent-"+arch)
		cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", hub, "./testdata/program")
		cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH="+arch, "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return bin, &exec.Error{Name: string(out), Err: err}
		}
		if err := os.MkdirAll(filepath.Dir(agent), 0o755); err != nil {
			return bin, err
		}
		if err := os.Link(hub, agent); err != nil {
			return bin, err
		}
		if err := os.WriteFile(agent+".sha256", []byte("checksum\n"), 0o644); err != nil {
			return bin, err
		}
	}
	return bin, nil
})

// allPackages makes all packages once, beside the programs, for the tests that only read them.
var allPackages = sync.OnceValues(func() ([]string, error) {
	bin, err := programs()
	if err != nil {
		return nil, err
	}
	return Packages(optionsFor(bin, filepath.Join(filepath.Dir(bin), "packages")))
})

func TestMain(m *testing.M) {
	code := m.Run()
	if bin, _ := programs(); bin != "" {
		_ = os.RemoveAll(filepath.Dir(bin))
	}
	os.Exit(code)
}

func options(t *testing.T) Options {
	t.Helper()
	bin, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	return optionsFor(bin, t.TempDir())
}

func optionsFor(bin, out string) Options {
	return Options{Names: Names, Version: "v1.2.3", Source: "../../..", Bin: bin, Arches: Arches, Time: time.Unix(1767225600, 0).UTC(),
		Out: out}
}

// made returns the packages that are made once; they must not be changed.
func made(t *testing.T) []string {
	t.Helper()
	written, err := allPackages()
	if err != nil {
		t.Fatal(err)
	}
	return written
}

// packages makes packages.
func packages(t *testing.T, o Options) []string {
	t.Helper()
	written, err := Packages(o)
	if err != nil {
		t.Fatal(err)
	}
	return written
}

// output runs a program and returns what it prints.
func output(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C", "TZ=UTC")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s%s", name, strings.Join(args, " "), err, out, stderr.String())
	}
	return string(out)
}

// TestReproducible makes the packages twice: from binaries in another directory with other times, into another directory, in another
// environment.
func TestReproducible(t *testing.T) {
	o := options(t)
	first := made(t)
	if len(first) != len(Names)*len(Arches)*2 {
		t.Errorf("got %v", first)
	}
	other := o
	other.Bin, other.Out = filepath.Join(t.TempDir(), "elsewhere"), t.TempDir()
	if err := os.CopyFS(other.Bin, os.DirFS(o.Bin)); err != nil {
		t.Fatal(err)
	}
	// A link to a binary is followed.
	agent := filepath.Join(other.Bin, "assets", "system-agent-amd64")
	if err := errors.Join(os.Rename(agent, agent+".target"), os.Symlink(agent+".target", agent)); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TZ", "Asia/Tokyo")
	t.Setenv("SOURCE_DATE_EPOCH", "1")
	t.Setenv("CATTLE_AGENT_CONFIG", "/elsewhere/config.yaml")
	t.Setenv("TMPDIR", t.TempDir())
	time.Sleep(1100 * time.Millisecond) // times of files are in seconds
	for i, path := range packages(t, other) {
		for _, suffix := range []string{"", DocumentSuffix} {
			a, err := os.ReadFile(first[i] + suffix)
			if err != nil {
				t.Fatal(err)
			}
			b, err := os.ReadFile(path + suffix)
			if err != nil {
				t.Fatal(err)
			}
			if filepath.Base(first[i]) != filepath.Base(path) || !bytes.Equal(a, b) {
				t.Errorf("%s and %s differ", first[i]+suffix, path+suffix)
			}
		}
	}
}

func TestRefusedOptions(t *testing.T) {
	for want, change := range map[string]func(*Options){
		`version: must be a semantic version such as v1.2.3 or v1.2.3-rc.1, got "dev"`: func(o *Options) { o.Version = "dev" },
		`architectures: must be of amd64, arm64, got "s390x"`:                          func(o *Options) { o.Arches = []string{"s390x"} },
		"architectures: must name at least one of amd64, arm64":                        func(o *Options) { o.Arches = nil },
		"architectures: amd64 is listed twice":                                         func(o *Options) { o.Arches = append(o.Arches, "amd64") },
		`packages: must be of drover-agent, drover-hub, got "drover-cli"`:              func(o *Options) { o.Names = []string{"drover-cli"} },
		"time: must be after 1970":                                                     func(o *Options) { o.Time = time.Time{} },
		"source: must be the root of the repository":                                   func(o *Options) { o.Source = t.TempDir() },
		"bin: must be the directory that `make cross` builds":                          func(o *Options) { o.Bin = "/nowhere" },
		"out: must be the directory to write packages to":                              func(o *Options) { o.Out = "" },
	} {
		o := options(t)
		change(&o)
		if written, err := Packages(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, %v, want %s", written, err, want)
		}
	}
}

// TestRefusedBinaries has programs that must not get into a package, and what is missing.
func TestRefusedBinaries(t *testing.T) {
	for name, test := range map[string]struct {
		change func(t *testing.T, bin string)
		want   string
	}{
		"another architecture": {want: "is a program for EM_AARCH64, not for amd64", change: func(t *testing.T, bin string) {
			output(t, "cp", "-f", bin+"/assets/system-agent-arm64", bin+"/assets/system-agent-amd64")
		}},
		"no program": {want: "which `make cross` builds", change: func(t *testing.T, bin string) {
			if err := os.WriteFile(bin+"/assets/system-agent-arm64", []byte("text"), 0o755); err != nil {
				t.Fatal(err)
			}
		}},
		"dynamic": {want: "is not static; build it with CGO_ENABLED=0", change: func(t *testing.T, bin string) {
			output(t, "cp", "-f", "/bin/true", bin+"/linux-amd64/hub")
		}},
		"missing": {want: "no such file", change: func(t *testing.T, bin string) { _ = os.Remove(bin + "/linux-arm64/hub") }},
	} {
		t.Run(name, func(t *testing.T) {
			o := options(t)
			bin := filepath.Join(t.TempDir(), "bin")
			if err := os.CopyFS(bin, os.DirFS(o.Bin)); err != nil {
				t.Fatal(err)
			}
			test.change(t, bin)
			o.Bin = bin
			if _, err := Packages(o); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %s", err, test.want)
			}
		})
	}
}

// TestLintian has Debian's own checker look at the deb packages. What it reports and is meant so is in files/lintian, with the reason.
func TestLintian(t *testing.T) {
	for _, path := range made(t) {
		if strings.HasSuffix(path, ".deb") {
			cmd := exec.Command("lintian", "--fail-on", "error,warning", "--allow-root", path)
			if out, err := cmd.CombinedOutput(); err != nil || bytes.Contains(out, []byte("unused-override")) {
				t.Errorf("lintian %s: %v\n%s", filepath.Base(path), err, out)
			}
		}
	}
}

// TestRPM has rpm itself read the packages.
func TestRPM(t *testing.T) {
	for _, path := range made(t) {
		if !strings.HasSuffix(path, ".rpm") {
			continue
		}
		if got := output(t, "rpm", "-K", path); !strings.Contains(got, "digests OK") {
			t.Errorf("rpm -K: %s", got)
		}
		got := output(t, "rpm", "-qp", "--queryformat", "%{NAME} %{VERSION} %{RELEASE} %{LICENSE} %{BUILDHOST} %{BUILDTIME}", path)
		name := strings.Fields(got)[0]
		if want := name + " 1.2.3 1 Apache-2.0 localhost 1767225600"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		scripts := output(t, "rpm", "-qp", "--scripts", path)
		for _, script := range []string{"postinstall", "preuninstall", "postuninstall", "posttrans"} {
			if !strings.Contains(scripts, script+" scriptlet (using /bin/sh)") {
				t.Errorf("%s has no %s script", name, script)
			}
		}
	}
}
