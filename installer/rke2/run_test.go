package rke2

import (
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/drover-dev/drover/installer/testenv/shelltest"
)

// releaseScript does what matters of an RKE2 release's install.sh: it reads the staged files and unpacks to the prefix.
const releaseScript = `
cd "$INSTALL_RKE2_ARTIFACT_PATH" || exit 9
ls | tr '\n' ' ' >"$INSTALL_RKE2_TAR_PREFIX/staged"
sha256sum -c sha256sum-*.txt || exit 8
mkdir -p "$INSTALL_RKE2_TAR_PREFIX/bin"
cp rke2.linux-*.tar.gz "$INSTALL_RKE2_TAR_PREFIX/bin/rke2"
echo "$INSTALL_RKE2_METHOD $INSTALL_RKE2_TYPE $INSTALL_RKE2_AGENT_IMAGES_DIR" >"$INSTALL_RKE2_TAR_PREFIX/env"
mkdir -p "$INSTALLER_ROOT/etc/systemd/system"
`

// stampFile is that of the published images, too.
const stampFile = "var/lib/rancher/rke2/system-agent-installer/rke2_restart_stamp"

var (
	tarball  = "rke2.linux-" + shelltest.Arch() + ".tar.gz"
	sums     = "sha256sum-" + shelltest.Arch() + ".txt"
	imageTar = "rke2-images.linux-" + shelltest.Arch() + ".tar.zst"
)

func machine(t *testing.T) *shelltest.Machine {
	m := shelltest.New(t, runScript, map[string]string{tarball: "the release", "installer.sh": releaseScript})
	m.Sum(tarball)
	return m
}

func TestRestartStamp(t *testing.T) {
	m := machine(t)
	installed := []string{"daemon-reload", "enable rke2-server.service"}
	for _, step := range []struct {
		name, state, stamp string
		env                []string
		want               []string
	}{
		{name: "first start", stamp: "one", want: []string{"--no-block start rke2-server.service"}},
		{name: "same stamp", stamp: "one"},
		{name: "another variable", stamp: "one", env: []string{"NO_PROXY=a"}, want: []string{"--no-block restart rke2-server.service"}},
		{name: "the same variable", stamp: "one", env: []string{"NO_PROXY=a"}},
		{name: "none of the unit's", stamp: "one", env: []string{"NO_PROXY=a", "OTHER=x"}},
		{name: "without it", stamp: "one", want: []string{"--no-block restart rke2-server.service"}},
		{name: "changed stamp", stamp: "two", want: []string{"--no-block restart rke2-server.service"}},
		{name: "failed unit", state: "failed", stamp: "two",
			want: []string{"reset-failed rke2-server.service", "--no-block restart rke2-server.service"}},
	} {
		if step.state != "" {
			m.SetState("rke2-server.service", step.state)
		}
		if diff := cmp.Diff(append(installed[:2:2], step.want...), m.MustRun(append(step.env, "RESTART_STAMP="+step.stamp)...)); diff != "" {
			t.Fatalf("%s: orders to systemctl (-want +got):\n%s", step.name, diff)
		}
		if got := strings.TrimSpace(m.Read(stampFile)); got != step.stamp {
			t.Fatalf("%s: kept stamp is %q", step.name, got)
		}
	}
}

// TestStampOfOtherImages: that a machine switches from the published images, or from earlier versions of this one, is no reason to restart.
func TestStampOfOtherImages(t *testing.T) {
	const earlier = "var/lib/rancher/rke2/restart_stamp"
	m := machine(t)
	m.SetState("rke2-server.service", "active")
	for file, stamp := range map[string]string{stampFile: "one", earlier: "two"} {
		path := filepath.Join(m.Root, file)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(stamp+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	installed := []string{"daemon-reload", "enable rke2-server.service"}
	if diff := cmp.Diff(installed, m.MustRun("RESTART_STAMP=two")); diff != "" {
		t.Errorf("orders to systemctl after an earlier version (-want +got):\n%s", diff)
	}
	if got := strings.TrimSpace(m.Read(stampFile)); got != "two" || m.Exists(earlier) {
		t.Errorf("kept stamp is %q, earlier file exists: %t", got, m.Exists(earlier))
	}
	if diff := cmp.Diff(installed, m.MustRun("RESTART_STAMP=two")); diff != "" {
		t.Errorf("orders to systemctl after the published image (-want +got):\n%s", diff)
	}
}

// TestInstalledFilesAreDurable: a power cut right after the installation loses nothing, since the agent does not run it again.
func TestInstalledFilesAreDurable(t *testing.T) {
	m := machine(t)
	// The image's directory comes first in the PATH.
	if err := os.WriteFile(filepath.Join(m.Image, "sync"), []byte("#!/bin/sh\necho \"sync $*\" >>\"$FAKE_UNITS/log\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	synced := strings.ReplaceAll("sync -f ROOT/usr/local/bin ROOT/usr/local/lib/systemd/system ROOT/etc/systemd/system", "ROOT", m.Root)
	want := []string{"daemon-reload", "enable rke2-server.service", synced, "--no-block start rke2-server.service"}
	if diff := cmp.Diff(want, m.MustRun()); diff != "" {
		t.Errorf("orders (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"daemon-reload", synced}, m.MustRun("INSTALL_RKE2_SKIP_START=true")); diff != "" {
		t.Errorf("orders without a start (-want +got):\n%s", diff)
	}
}

// TestNoRoom: on a full disk, the RKE2 that runs on the machine keeps its programs.
func TestNoRoom(t *testing.T) {
	m := machine(t)
	var release bytes.Buffer
	z := gzip.NewWriter(&release)
	if _, err := z.Write(make([]byte, 3<<20)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	m.Artifact(tarball, release.String())
	m.Sum(tarball)
	free := func(kib string) {
		df := "#!/bin/sh\necho Filesystem 1024-blocks Used Available Capacity Mounted on\necho /dev/vda1 9999999 9990000 " + kib + " 99% /\n"
		if err := os.WriteFile(filepath.Join(m.Image, "df"), []byte(df), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	free("2000")
	code, out := m.Run()
	want := "installer: " + m.Root + "/usr/local has 2000 KiB free, and RKE2 needs 3072 KiB: free some space\n"
	if diff := cmp.Diff(want, out); code != 1 || diff != "" {
		t.Errorf("exit code %d, output (-want +got):\n%s", code, diff)
	}
	if m.Exists("usr/local/bin/rke2") {
		t.Error("The release was unpacked")
	}
	free("4000")
	m.MustRun()
}

func TestSkipStartOnlyInstalls(t *testing.T) {
	m := machine(t)
	if diff := cmp.Diff([]string{"daemon-reload"}, m.MustRun("RESTART_STAMP=one", "INSTALL_RKE2_SKIP_START=true")); diff != "" {
		t.Errorf("orders to systemctl (-want +got):\n%s", diff)
	}
	if m.Exists(stampFile) {
		t.Error("the restart stamp was kept although nothing was started")
	}
}

func TestReleaseScriptSeesWhatItNeeds(t *testing.T) {
	m := machine(t)
	m.Artifact(imageTar, "images")
	m.Artifact("rke2-images-calico.linux-"+shelltest.Arch()+".tar.zst", "calico")
	m.MustRun("INSTALL_RKE2_EXEC=agent", "RKE2_DATA_DIR="+m.Root+"/data")
	if got, want := m.Read("usr/local/staged"), tarball+" "+sums+" "; got != want {
		t.Errorf("the release's script saw %q, want %q", got, want)
	}
	if got, want := m.Read("usr/local/env"), "tar agent "+m.Root+"/data/agent/images\n"; got != want {
		t.Errorf("the release's script was told %q, want %q", got, want)
	}
	if got := m.Read("data/agent/images/" + imageTar); got != "images" {
		t.Errorf("images are %q", got)
	}
	if got := m.Read("data/agent/images/rke2-images-calico.linux-" + shelltest.Arch() + ".tar.zst"); got != "calico" {
		t.Errorf("further images are %q", got)
	}
}

func TestEnvironmentOfTheUnit(t *testing.T) {
	m := machine(t)
	const file = "usr/local/lib/systemd/system/rke2-server.env"
	m.MustRun("HTTPS_PROXY=http://proxy:3128", "no_proxy=10.0.0.0/8, .local", `RKE2_NODE_NAME=a "b" \c`, "OTHER=x", "CONTAINERD_X=1")
	want := `CONTAINERD_X="1"
HTTPS_PROXY="http://proxy:3128"
RKE2_NODE_NAME="a \"b\" \\c"
no_proxy="10.0.0.0/8, .local"
`
	if diff := cmp.Diff(want, m.Read(file)); diff != "" {
		t.Errorf("environment file (-want +got):\n%s", diff)
	}
	if mode := m.Mode(file); mode != 0o600 {
		t.Errorf("mode of the environment file is %o", mode)
	}
	m.MustRun("HTTPS_PROXY=http://other:3128")
	if diff := cmp.Diff("HTTPS_PROXY=\"http://other:3128\"\n", m.Read(file)); diff != "" {
		t.Errorf("environment file after a change (-want +got):\n%s", diff)
	}
}

// TestEnvironmentOfTheRelease: HOME, which the release's own file has, stays.
func TestEnvironmentOfTheRelease(t *testing.T) {
	m := machine(t)
	const file = "usr/local/lib/systemd/system/rke2-server.env"
	m.Artifact("installer.sh", releaseScript+`
mkdir -p "$INSTALL_RKE2_TAR_PREFIX/lib/systemd/system"
echo HOME=/root >"$INSTALL_RKE2_TAR_PREFIX/lib/systemd/system/rke2-server.env"
`)
	for range 2 {
		m.MustRun("HTTPS_PROXY=http://proxy:3128")
		if diff := cmp.Diff("HOME=/root\nHTTPS_PROXY=\"http://proxy:3128\"\n", m.Read(file)); diff != "" {
			t.Errorf("environment file (-want +got):\n%s", diff)
		}
	}
	// A release without such a file: what stands there is that of the last run.
	m.Artifact("installer.sh", releaseScript)
	m.MustRun()
	if diff := cmp.Diff("HOME=/root\n", m.Read(file)); diff != "" {
		t.Errorf("environment file without variables (-want +got):\n%s", diff)
	}
	if mode := m.Mode(file); mode != 0o600 {
		t.Errorf("mode of the environment file is %o", mode)
	}
}

// TestVariablesOfTheRelease: a machine on which an earlier version of run.sh has removed them is not restarted when it gets them back. They
// are read at the next start.
func TestVariablesOfTheRelease(t *testing.T) {
	m := machine(t)
	m.MustRun("HTTPS_PROXY=http://proxy:3128") // stores the checksum of this variable alone, as earlier versions do
	m.Artifact("installer.sh", releaseScript+`
mkdir -p "$INSTALL_RKE2_TAR_PREFIX/lib/systemd/system"
echo HOME=/root >"$INSTALL_RKE2_TAR_PREFIX/lib/systemd/system/rke2-server.env"
`)
	installed := []string{"daemon-reload", "enable rke2-server.service"}
	if diff := cmp.Diff(installed, m.MustRun("HTTPS_PROXY=http://proxy:3128")); diff != "" {
		t.Errorf("orders to systemctl (-want +got):\n%s", diff)
	}
	if got, want := m.Read("usr/local/lib/systemd/system/rke2-server.env"), "HOME=/root\nHTTPS_PROXY=\"http://proxy:3128\"\n"; got != want {
		t.Errorf("environment file has %q, want %q", got, want)
	}
	restarted := slices.Concat(installed, []string{"--no-block restart rke2-server.service"})
	if diff := cmp.Diff(restarted, m.MustRun("HTTPS_PROXY=http://other:3128")); diff != "" {
		t.Errorf("orders to systemctl after a change of a variable (-want +got):\n%s", diff)
	}
}

// TestStampInTheDataDirectory: that a machine with another data directory switches from the published images, or from earlier versions of
// this one, is no reason to restart.
func TestStampInTheDataDirectory(t *testing.T) {
	const published = "system-agent-installer/rke2_restart_stamp"
	installed := []string{"daemon-reload", "enable rke2-server.service"}
	for name, earlier := range map[string]string{"published": "data/" + published, "earlier version": stampFile} {
		t.Run(name, func(t *testing.T) {
			m := machine(t)
			m.SetState("rke2-server.service", "active")
			path := filepath.Join(m.Root, earlier)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte("one\n"), 0o644); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if diff := cmp.Diff(installed, m.MustRun("RESTART_STAMP=one", "RKE2_DATA_DIR="+m.Root+"/data")); diff != "" {
					t.Errorf("orders to systemctl (-want +got):\n%s", diff)
				}
			}
			if got := strings.TrimSpace(m.Read("data/" + published)); got != "one" || m.Exists(stampFile) {
				t.Errorf("kept stamp is %q, earlier file exists: %t", got, m.Exists(stampFile))
			}
		})
	}
}

// TestDefaultDataDirectoryInOtherWords: the file of the stamp is not removed as that of an earlier version, after which each change of a
// plan would restart RKE2.
func TestDefaultDataDirectoryInOtherWords(t *testing.T) {
	for _, dir := range []string{"/var/lib/rancher/rke2/", "/link/rancher/rke2"} {
		m := machine(t)
		if err := os.MkdirAll(filepath.Join(m.Root, "var/lib"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("var/lib", filepath.Join(m.Root, "link")); err != nil {
			t.Fatal(err)
		}
		installed := []string{"daemon-reload", "enable rke2-server.service"}
		for i, want := range [][]string{append(installed[:2:2], "--no-block start rke2-server.service"), installed, installed} {
			if diff := cmp.Diff(want, m.MustRun("RESTART_STAMP=one", "RKE2_DATA_DIR="+m.Root+dir)); diff != "" {
				t.Errorf("%s: orders to systemctl in run %d (-want +got):\n%s", dir, i, diff)
			}
		}
		if got := strings.TrimSpace(m.Read(stampFile)); got != "one" {
			t.Errorf("%s: kept stamp is %q", dir, got)
		}
	}
}

func TestErrors(t *testing.T) {
	for _, test := range []struct {
		name    string
		prepare func(*shelltest.Machine)
		env     []string
		want    string
	}{
		{name: "damaged", prepare: func(m *shelltest.Machine) { m.Artifact(tarball, "half") },
			want: "installer: " + tarball + " is damaged: its checksum is not the one in " + sums + "\n"},
		{name: "not listed", prepare: func(m *shelltest.Machine) { m.Sum("run.sh") },
			want: "installer: " + sums + " has no line for " + tarball + "\n"},
		{name: "role", env: []string{"INSTALL_RKE2_TYPE=etcd"},
			want: "installer: INSTALL_RKE2_TYPE or INSTALL_RKE2_EXEC must be server or agent, not etcd\n"},
		{name: "other role runs", env: []string{"INSTALL_RKE2_TYPE=agent"},
			prepare: func(m *shelltest.Machine) { m.SetState("rke2-server.service", "active") },
			want:    "installer: rke2-server runs on this machine and the plan wants rke2-agent: run rke2-uninstall.sh first\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := machine(t)
			if test.prepare != nil {
				test.prepare(m)
			}
			code, out := m.Run(test.env...)
			if diff := cmp.Diff(test.want, out); code != 1 || diff != "" {
				t.Errorf("exit code %d, output (-want +got):\n%s", code, diff)
			}
		})
	}
}
