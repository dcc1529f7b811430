// Package shelltest runs an installer image's run.sh as an agent does, against a directory that stands for the machine and a
// systemctl that keeps its units in files. Only tests use it.
package shelltest

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/drover-dev/drover/installer/shell"
)

//go:embed systemctl.sh
var systemctl []byte

// Machine is where run.sh installs to.
type Machine struct {
	t *testing.T
	// Root is the machine's file system.
	Root string
	// Image is the directory that the image was unpacked into.
	Image string
	units string
	bin   string
}

// New makes a machine and unpacks an image with these files onto it; run.sh and lib.sh are added.
func New(t *testing.T, runScript []byte, files map[string]string) *Machine {
	t.Helper()
	base := t.TempDir()
	m := &Machine{t: t, Root: filepath.Join(base, "root"), Image: filepath.Join(base, "image"),
		units: filepath.Join(base, "units"), bin: filepath.Join(base, "bin")}
	for _, dir := range []string{m.Root, m.Image, m.units, m.bin} {
		m.check(os.MkdirAll(dir, 0o755))
	}
	m.check(os.WriteFile(filepath.Join(m.bin, "systemctl"), systemctl, 0o755))
	m.check(os.WriteFile(filepath.Join(m.Image, "run.sh"), runScript, 0o755))
	m.check(os.WriteFile(filepath.Join(m.Image, "lib.sh"), shell.Lib, 0o644))
	for name, content := range files {
		m.Artifact(name, content)
	}
	return m
}

// Arch is this machine's architecture as releases name it.
func Arch() string { return runtime.GOARCH }

// Artifact replaces a file of the image.
func (m *Machine) Artifact(name, content string) {
	m.t.Helper()
	m.check(os.WriteFile(filepath.Join(m.Image, name), []byte(content), 0o644))
}

// Sum writes the image's checksum file for these files of it.
func (m *Machine) Sum(names ...string) {
	m.t.Helper()
	var lines strings.Builder
	for _, name := range names {
		content, err := os.ReadFile(filepath.Join(m.Image, name))
		m.check(err)
		fmt.Fprintf(&lines, "%x  %s\n", sha256.Sum256(content), name)
	}
	m.Artifact("sha256sum-"+Arch()+".txt", lines.String())
}

// Run runs run.sh as a plan's install instruction does and returns its exit code and everything it printed.
func (m *Machine) Run(env ...string) (int, string) {
	m.t.Helper()
	interpreter := "dash"
	if _, err := exec.LookPath(interpreter); err != nil {
		interpreter = "sh"
	}
	cmd := exec.Command(interpreter, "-c", "run.sh")
	cmd.Dir = m.Image
	cmd.Env = append([]string{
		"PATH=" + m.Image + ":" + m.bin + ":" + os.Getenv("PATH"), "CATTLE_AGENT_EXECUTION_PWD=" + m.Image,
		"INSTALLER_ROOT=" + m.Root, "FAKE_UNITS=" + m.units, "INSTALLER_STOP_TIMEOUT=3",
	}, env...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if cmd.ProcessState == nil {
		m.t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String()
}

// MustRun is Run for what has to succeed; it returns what systemctl was asked to change since the last call.
func (m *Machine) MustRun(env ...string) []string {
	m.t.Helper()
	if code, out := m.Run(env...); code != 0 {
		m.t.Fatalf("run.sh ended with %d:\n%s", code, out)
	}
	return m.Orders()
}

// Orders returns and forgets what systemctl was asked to change.
func (m *Machine) Orders() []string {
	m.t.Helper()
	log := filepath.Join(m.units, "log")
	raw, err := os.ReadFile(log)
	if os.IsNotExist(err) {
		return nil
	}
	m.check(err)
	m.check(os.Remove(log))
	return strings.Split(strings.TrimSpace(string(raw)), "\n")
}

// SetState gives a unit a state, as if the service manager had set it.
func (m *Machine) SetState(unit, state string) {
	m.t.Helper()
	m.check(os.WriteFile(filepath.Join(m.units, unit+".state"), []byte(state+"\n"), 0o644))
}

// Read returns the content of a file of the machine.
func (m *Machine) Read(path string) string {
	m.t.Helper()
	raw, err := os.ReadFile(filepath.Join(m.Root, path))
	m.check(err)
	return string(raw)
}

// Mode returns the permissions of a file of the machine.
func (m *Machine) Mode(path string) os.FileMode {
	m.t.Helper()
	info, err := os.Stat(filepath.Join(m.Root, path))
	m.check(err)
	return info.Mode().Perm()
}

// Exists reports whether the machine has a file.
func (m *Machine) Exists(path string) bool {
	_, err := os.Lstat(filepath.Join(m.Root, path))
	return err == nil
}

func (m *Machine) check(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatal(err)
	}
}
