// Package release tests tools/release.sh, which makes a release. A program that takes the place of make leaves in a moment what the targets
// of the Makefile build in minutes; everything else is real.
package release

import (
	"archive/tar"
	"compress/gzip"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/drover-dev/drover/packaging/install"
)

const changelog = `# Changelog

## [Unreleased]

## [1.2.30] - 2026-02-03

Another version.

## [1.2.3] - 2026-01-02

### Added

- Something [new](docs/images.md).

## [1.2.2]

## [1.2.1] - 2026-01-01

- Old.

[1.2.1]: https://example.com/1.2.1
`

// checkout is a repository with the script, and a program in place of make.
type checkout struct {
	t   *testing.T
	dir string
	env []string
}

func newCheckout(t *testing.T, dir string) *checkout {
	t.Helper()
	c := &checkout{t: t, dir: dir}
	tools := t.TempDir()
	c.copy("testdata/make", filepath.Join(tools, "make"))
	c.env = append(slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "MAKE") || strings.HasPrefix(v, "RELEASE_KEY=") || strings.HasPrefix(v, "GIT_")
	}), "PATH="+tools+":"+os.Getenv("PATH"), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com",
		"GIT_AUTHOR_DATE=@1700000000 +0000", "GIT_COMMITTER_DATE=@1700000000 +0000", "GOFLAGS=-mod=mod")
	parts, err := filepath.Glob("../../packaging/install/parts/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range append(parts,
		"../../tools/release.sh", "../../LICENSE", "../../packaging/install/system-agent-install.sh",
		"../../packaging/install/system-agent-uninstall.sh",
	) {
		c.copy(file, filepath.Join(dir, strings.TrimPrefix(file, "../../")))
	}
	c.write("CHANGELOG.md", changelog)
	c.write(".gitignore", "/bin/\n/dist/\n")
	c.do("git", "init", "-q")
	c.do("git", "add", "-A")
	c.do("git", "commit", "-q", "-m", "all")
	return c
}

func (c *checkout) copy(from, to string) {
	c.t.Helper()
	raw, err := os.ReadFile(from)
	info, statErr := os.Stat(from)
	if err = errors.Join(err, statErr); err == nil {
		err = errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, raw, info.Mode().Perm()))
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

func (c *checkout) write(name, content string) {
	c.t.Helper()
	if err := os.WriteFile(filepath.Join(c.dir, name), []byte(content), 0o644); err != nil {
		c.t.Fatal(err)
	}
}

func (c *checkout) run(program string, args ...string) (string, error) {
	cmd := exec.CommandContext(c.t.Context(), program, args...)
	cmd.Dir, cmd.Env = c.dir, c.env
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (c *checkout) do(program string, args ...string) {
	c.t.Helper()
	if out, err := c.run(program, args...); err != nil {
		c.t.Fatalf("%s %s: %v\n%s", program, args, err, out)
	}
}

// buildPrograms builds what the fake make leaves, and returns the directory of it.
func buildPrograms(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, pkg := range map[string]string{"build-images": "../images/build", "program": "./testdata/program"} {
		if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(dir, name), pkg).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	return dir
}

// addPrograms makes the programs in dir those that the fake make leaves.
func (c *checkout) addPrograms(dir string) {
	c.t.Helper()
	c.copy(filepath.Join(dir, "build-images"), filepath.Join(c.dir, "bin/build-images"))
	c.env = append(c.env, "PROGRAM="+filepath.Join(dir, "program"))
}

// dist reads the files of the release.
func (c *checkout) dist() map[string]string {
	c.t.Helper()
	entries, err := os.ReadDir(filepath.Join(c.dir, "dist"))
	if err != nil {
		c.t.Fatal(err)
	}
	files := map[string]string{}
	for _, entry := range entries {
		raw, err := os.ReadFile(filepath.Join(c.dir, "dist", entry.Name()))
		if err != nil {
			c.t.Fatal(err)
		}
		files[entry.Name()] = string(raw)
	}
	return files
}

func TestRefusals(t *testing.T) {
	other := map[string]string{"amd64": "arm64", "arm64": "amd64"}[runtime.GOARCH]
	for _, test := range []struct {
		name   string
		args   []string
		change func(*checkout)
		want   string
	}{
		{"no version", nil, nil, "VERSION is missing, such as VERSION=v1.2.3"},
		{"empty version", []string{""}, nil, "VERSION is missing"},
		{"no v", []string{"1.2.3"}, nil, `VERSION: must be a semantic version with v, such as v1.2.3 or v1.2.3-rc.1, got "1.2.3"`},
		{"two numbers", []string{"v1.2"}, nil, `got "v1.2"`},
		{"leading zero", []string{"v1.02.3"}, nil, `got "v1.02.3"`},
		{"empty pre-release", []string{"v1.2.3-"}, nil, `got "v1.2.3-"`},
		{"build metadata", []string{"v1.2.3+1"}, nil, `got "v1.2.3+1"`},
		{"a second line", []string{"v1.2.3\nv"}, nil, "VERSION: must be"},
		{"not this machine", []string{"v1.2.3", other}, nil, "ARCHES: must include " + runtime.GOARCH},
		{"no key", []string{"v1.2.3"}, func(c *checkout) { c.env = append(c.env, "RELEASE_KEY=/none") }, "RELEASE_KEY: cannot read /none"},
		{"changed file", []string{"v1.2.3"}, func(c *checkout) { c.write("LICENSE", "mine") },
			"commit or remove these changes first:\n M LICENSE"},
		{"unknown file", []string{"v1.2.3"}, func(c *checkout) { c.write("new.go", "") },
			"commit or remove these changes first:\n?? new.go"},
		{"other tag", []string{"v1.2.3"}, func(c *checkout) {
			c.do("git", "tag", "v1.2.3")
			c.do("git", "commit", "-q", "--allow-empty", "-m", "more")
		}, "tag v1.2.3 is of another commit"},
		{"no section", []string{"v1.2.4"}, nil, `CHANGELOG.md has no section "## [1.2.4]" with text`},
		{"no section of the candidate", []string{"v1.2.3-rc.1"}, nil, `CHANGELOG.md has no section "## [1.2.3-rc.1]" with text`},
		{"empty section", []string{"v1.2.2"}, nil, `CHANGELOG.md has no section "## [1.2.2]" with text`},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := newCheckout(t, t.TempDir())
			if test.change != nil {
				test.change(c)
			}
			out, err := c.run("tools/release.sh", test.args...)
			if err == nil || !strings.HasPrefix(out, "make release: ") || !strings.Contains(out, test.want) {
				t.Errorf("%v, output is %q, want %q", err, out, test.want)
			}
			for _, dir := range []string{"bin", "dist"} {
				if _, err := os.Stat(filepath.Join(c.dir, dir)); !errors.Is(err, os.ErrNotExist) {
					t.Errorf("%s: %v", dir, err)
				}
			}
		})
	}
}

// The version of git describe, which other targets use, is none for a release.
func TestMakeNeedsVersion(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "make", "-C", "../..", "release")
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "MAKE") || strings.HasPrefix(v, "VERSION=")
	})
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "make release: VERSION is missing") {
		t.Errorf("%v, output is %s", err, out)
	}
}

func TestFailureLeavesNoRelease(t *testing.T) {
	c := newCheckout(t, t.TempDir())
	c.addPrograms(buildPrograms(t))
	c.env = append(c.env, "FAIL=images")
	if out, err := c.run("tools/release.sh", "v1.2.3"); err == nil || !strings.Contains(out, "images failed") {
		t.Errorf("%v, output is %s", err, out)
	}
	if _, err := os.Stat(filepath.Join(c.dir, "dist")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("dist: %v", err)
	}
}

// newKey returns a key and its file.
func newKey(t *testing.T) (*ecdsa.PrivateKey, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "key.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return key, file
}

func TestRelease(t *testing.T) {
	key, keyFile := newKey(t)
	built := buildPrograms(t)
	var releases []map[string]string
	for _, dir := range []string{"one", "another/folder"} {
		c := newCheckout(t, filepath.Join(t.TempDir(), dir))
		c.env = append(c.env, "RELEASE_KEY="+keyFile)
		c.addPrograms(built)
		c.copy("/dev/null", filepath.Join(c.dir, "bin/packages/drover-hub_0.9.0-1_amd64.deb")) // of another version
		c.copy("/dev/null", filepath.Join(c.dir, "dist/other"))
		out, err := c.run("tools/release.sh", "v1.2.3", "amd64", "arm64")
		if err != nil || !strings.Contains(out, "=== release v1.2.3 for amd64 arm64, 3 of 7: images (") {
			t.Fatalf("%v\n%s", err, out)
		}
		releases = append(releases, c.dist())
	}
	if diff := cmp.Diff(releases[0], releases[1]); diff != "" {
		t.Errorf("releases of two checkouts (-first +second):\n%s", diff)
	}
	checkFiles(t, releases[0])
	checkSums(t, releases[0], &key.PublicKey)
}

func checkFiles(t *testing.T, dist map[string]string) {
	t.Helper()
	want := []string{"drover-1.2.3.tgz", "drover-clusterctl-v1.2.3.tar.gz", "drover-images-v1.2.3.digests.txt",
		"drover-images-v1.2.3.tar", "drover-images-v1.2.3.txt",
		"hub-v1.2.3-linux-amd64.spdx.json",
		"release-notes-v1.2.3.md", "sha256sums.txt", "sha256sums.txt.sig", "system-agent-install.sh", "system-agent-uninstall.sh"}
	for _, arch := range []string{"amd64", "arm64"} {
		want = append(want, "drover-hub_1.2.3-1_"+arch+".deb", "drover-hub_1.2.3-1_"+arch+".deb.spdx.json",
			"drover-hub-1.2.3-1."+arch+".rpm")
		for _, program := range []string{"hub", "installer", "system-agent"} {
			archive := program + "-v1.2.3-linux-" + arch + ".tar.gz"
			want = append(want, archive, archive+".spdx.json")
		}
	}
	var got []string
	for name := range dist {
		got = append(got, name)
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("files (-want +got):\n%s", diff)
	}
	for name, want := range map[string]string{
		"release-notes-v1.2.3.md":  "### Added\n\n- Something [new](docs/images.md).\n",
		"drover-images-v1.2.3.txt": "drover/hub:v1.2.3, images list\n",
		"drover-images-v1.2.3.tar": "bundle v1.2.3 of 1700000000 with -buildvcs=false\n",
	} {
		if got := strings.TrimLeft(dist[name], "\n"); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	script, err := install.Script()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(script), dist["system-agent-install.sh"]); diff != "" {
		t.Errorf("The install script is not the one that a hub serves (-want +got):\n%s", diff)
	}
	agents := []string{}
	for _, arch := range []string{"amd64", "arm64"} {
		agents = append(agents, "-rwxr-xr-x system-agent-"+arch, "-rw-r--r-- system-agent-"+arch+".sha256")
	}
	for name, files := range map[string][]string{
		"hub-v1.2.3-linux-arm64":          slices.Concat([]string{"-rwxr-xr-x hub"}, agents),
		"installer-v1.2.3-linux-amd64":    {"-rwxr-xr-x installer"},
		"system-agent-v1.2.3-linux-arm64": {"-rwxr-xr-x system-agent"},
	} {
		files = slices.Concat([]string{"-rw-r--r-- LICENSE", "-rw-r--r-- THIRD_PARTY_NOTICES"}, files)
		found, notices := list(t, name, dist[name+".tar.gz"])
		if diff := cmp.Diff(files, found); diff != "" {
			t.Errorf("files of %s (-want +got):\n%s", name, diff)
		}
		for _, want := range []string{"\nGo standard library go1", "\ngithub.com/google/go-cmp v0."} {
			if !strings.Contains(notices, want) {
				t.Errorf("notices of %s lack %q:\n%s", name, want, notices)
			}
		}
	}
}

// list lists the files of an archive below its directory, and reads the notices among them.
func list(t *testing.T, directory, content string) (found []string, notices string) {
	t.Helper()
	compressed, err := gzip.NewReader(strings.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	for archive := tar.NewReader(compressed); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return found, notices
		}
		if err != nil {
			t.Fatal(err)
		}
		if header.ModTime.Unix() != 1700000000 || header.Uid != 0 || header.Gid != 0 || header.Uname != "" {
			t.Errorf("%s: time %s, owner %d:%d %s", header.Name, header.ModTime, header.Uid, header.Gid, header.Uname)
		}
		name, ok := strings.CutPrefix(header.Name, directory+"/")
		if ok && name != "" {
			found = append(found, header.FileInfo().Mode().String()+" "+name)
		}
		if name == "THIRD_PARTY_NOTICES" {
			raw, err := io.ReadAll(archive)
			if err != nil {
				t.Fatal(err)
			}
			notices = string(raw)
		}
	}
}

func checkSums(t *testing.T, dist map[string]string, key *ecdsa.PublicKey) {
	t.Helper()
	sums := dist["sha256sums.txt"]
	made, err := base64.StdEncoding.DecodeString(strings.TrimSpace(dist["sha256sums.txt.sig"]))
	if err != nil {
		t.Fatal(err)
	}
	if sum := sha256.Sum256([]byte(sums)); !ecdsa.VerifyASN1(key, sum[:], made) {
		t.Error("the signature is not valid")
	}
	for name, content := range dist {
		line := fmt.Sprintf("%x  %s\n", sha256.Sum256([]byte(content)), name)
		if strings.Contains(sums, line) == strings.HasPrefix(name, "sha256sums") {
			t.Errorf("sha256sums.txt and %s:\n%s", name, sums)
		}
	}
}
