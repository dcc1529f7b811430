//go:build e2e && full

package chart

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/drover-dev/drover/e2e/readme"
	"github.com/drover-dev/drover/e2e/scenarios/suite"
)

// dist is what "make release" makes of the commit that is checked out. Changes that are not committed are not in it.
type dist struct {
	version string
	// root has the keys and the clones, dir the files of the release.
	root, dir string
}

// newDist chooses the newest version of the changelog, and makes a pair of keys.
func newDist(t *testing.T) *dist {
	t.Helper()
	changelog, err := os.ReadFile(filepath.Join(shared.Repo, "CHANGELOG.md"))
	suite.Must(t, err)
	match := regexp.MustCompile(`(?m)^## \[(\d+\.\d+\.\d+)\]`).FindSubmatch(changelog)
	if match == nil {
		t.Fatal("CHANGELOG.md has no section of a version")
	}
	if _, err := os.Stat(bin(shared.Lab, "cosign")); err != nil {
		t.Fatal("bin/cosign is not there: run make bin/cosign first")
	}
	d := &dist{version: "v" + string(match[1]), root: t.TempDir()}
	d.execute(t, d.root, "cosign generate-key-pair")
	return d
}

// number is the version without v, as the names of packages and charts have it.
func (d *dist) number() string { return d.version[1:] }

// build makes the release in a clone of its own below a folder, and returns the folder of its files. The clone has no tags, so that it does
// not matter whether the version was released. Both clones use one build cache.
func (d *dist) build(t *testing.T, folder, umask string, env ...string) string {
	t.Helper()
	began := time.Now()
	clone := filepath.Join(d.root, folder)
	d.execute(t, d.root, fmt.Sprintf("umask %s; git clone --quiet --no-tags '%s' '%s'; make --no-print-directory -C '%s' release VERSION=%s "+
		"ARCHES=%s RELEASE_KEY='%s/cosign.key'", umask, shared.Repo, clone, clone, d.version, runtime.GOARCH, d.root), env...)
	t.Logf("make release took %.0f s", time.Since(began).Seconds())
	return filepath.Join(clone, "dist")
}

// execute runs a script on this machine, where bin has cosign, and returns what it prints.
func (d *dist) execute(t *testing.T, dir, script string, env ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", script)
	cmd.Dir = dir
	// What this test was called with is not for the clones.
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "MAKE") || strings.HasPrefix(v, "MFLAGS=") || strings.HasPrefix(v, "VERSION=")
	})
	cmd.Env = append(append(cmd.Env, "PATH="+bin(shared.Lab, "")+":"+os.Getenv("PATH"), "COSIGN_PASSWORD=secret"), env...)
	out, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		t.Fatalf("%s\n%v: %s%s", script, err, out, exit.Stderr)
	}
	suite.Must(t, err)
	return string(out)
}

// checkSame checks that two folders have files of the same names and contents, and returns how many.
func checkSame(t *testing.T, first, second string) int {
	t.Helper()
	sums := sumsOf(t, first)
	if diff := cmp.Diff(sums, sumsOf(t, second)); diff != "" {
		t.Errorf("the second release differs from the first (-first +second):\n%s", diff)
	}
	return len(sums)
}

// sumsOf returns the checksums of all files of a folder by their names.
func sumsOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	suite.Must(t, err)
	sums := map[string]string{}
	for _, entry := range entries {
		file, err := os.Open(filepath.Join(dir, entry.Name()))
		suite.Must(t, err)
		sum := sha256.New()
		_, err = io.Copy(sum, file)
		suite.Must(t, errors.Join(err, file.Close()))
		sums[entry.Name()] = fmt.Sprintf("%x", sum.Sum(nil))
	}
	return sums
}

// verify verifies the files as docs/versions.md says, and checks that other content is refused.
func (d *dist) verify(t *testing.T) {
	t.Helper()
	script, err := readme.PageScript(shared.Repo, "docs/versions.md", "Verify a download", "cosign.pub", filepath.Join(d.root, "cosign.pub"))
	suite.Must(t, err)
	verified := d.execute(t, d.dir, script)
	for name := range sumsOf(t, d.dir) {
		if !strings.HasPrefix(name, "sha256sums.txt") && !strings.Contains(verified, name+": OK\n") {
			t.Errorf("sha256sum does not check %s:\n%s", name, verified)
		}
	}
	other := t.TempDir()
	d.execute(t, other, "cp '"+d.dir+"'/sha256sums.txt* .; echo >>sha256sums.txt")
	verify, _, _ := strings.Cut(script, "\n")
	if d.execute(t, other, verify+" || echo refused") != "refused\n" {
		t.Error("cosign accepts checksums that were changed")
	}
}

// unpack unpacks the archives with programs, checks that each says its version, and returns the path of the hub's command line.
func (d *dist) unpack(t *testing.T) (hub string) {
	t.Helper()
	for program, args := range map[string]string{"hub": "version", "system-agent": "--version", "installer": "--version"} {
		name := fmt.Sprintf("%s-%s-linux-%s", program, d.version, runtime.GOARCH)
		if said := d.execute(t, d.dir, fmt.Sprintf("tar -xzf %[1]s.tar.gz; %[1]s/%[2]s %[3]s", name, program, args)); !strings.Contains(said,
			d.version) {
			t.Errorf("%s says of its version %q", program, said)
		}
	}
	return filepath.Join(d.dir, fmt.Sprintf("hub-%s-linux-%s", d.version, runtime.GOARCH), "hub")
}
