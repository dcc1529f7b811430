package notices

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// buildProgram builds a program with modules.
func buildProgram(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "program")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", path, "./testdata/program").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return path
}

// TestCollect reads the modules of a program from the module cache.
func TestCollect(t *testing.T) {
	program := buildProgram(t)
	var first Collector
	got, err := first.Collect(t.Context(), program)
	if err != nil {
		t.Fatal(err)
	}
	text := string(got)
	for _, want := range []string{
		"\nGo standard library " + runtime.Version() + " (LICENSE)\n", "\nGo standard library " + runtime.Version() + " (PATENTS)\n",
		"\ngithub.com/google/go-cmp v0.", " (third_party/forked/golang/LICENSE)\n",
		"\n   * Redistributions in binary form must reproduce the above\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("missing: %q", want)
		}
	}
	if strings.Contains(text, "\ngithub.com/drover-dev/drover ") {
		t.Error("Drover is listed as a module of others")
	}
	var second Collector
	again, err := second.Collect(t.Context(), program, program)
	if err != nil || string(again) != text {
		t.Errorf("another time: %v\n%s", err, cmp.Diff(text, string(again)))
	}
}

// TestSameText has modules with the same text, and one that also has another one.
func TestSameText(t *testing.T) {
	program := buildProgram(t)
	dir, calls := t.TempDir(), 0
	c := Collector{locate: func(_ context.Context, modules map[module]string) (map[module]string, error) {
		calls += len(modules)
		directories := map[module]string{}
		for m := range modules {
			own := filepath.Join(dir, m.path)
			for name, text := range map[string]string{"LICENSE": "All rights\r\nreserved. \r\n\r\n", "PATENTS": "None.\n"} {
				if name == "LICENSE" || m.path == stdlib {
					write(t, filepath.Join(own, name), text)
				}
			}
			directories[m] = own
		}
		return directories, nil
	}}
	got, err := c.Collect(t.Context(), program)
	if err != nil {
		t.Fatal(err)
	}
	modules, err := modules(program)
	if err != nil {
		t.Fatal(err)
	}
	list := ""
	for _, m := range slices.SortedFunc(maps.Keys(modules), func(a, b module) int { return strings.Compare(a.String(), b.String()) }) {
		list += m.String() + " (LICENSE)\n"
	}
	double, single := strings.Repeat("=", 80)+"\n", strings.Repeat("-", 80)+"\n"
	want := introduction + "\n" + double + list + single + "\nAll rights\nreserved.\n\n" +
		double + "Go standard library " + runtime.Version() + " (PATENTS)\n" + single + "\nNone.\n"
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("text (-want +got):\n%s", diff)
	}
	if _, err := c.Collect(t.Context(), program); err != nil || calls != len(modules) {
		t.Errorf("%v, %d modules were read for a list of %d", err, calls, len(modules))
	}
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestNoLicense(t *testing.T) {
	program := buildProgram(t)
	dir := t.TempDir()
	c := Collector{locate: func(_ context.Context, modules map[module]string) (map[module]string, error) {
		return map[module]string{{"example.com/bare", "v1.0.0"}: dir}, nil
	}}
	_, err := c.Collect(t.Context(), program)
	if want := "reading the licenses of example.com/bare v1.0.0 in " + dir + ": no license found"; err == nil || err.Error() != want {
		t.Errorf("error is %v, want %s", err, want)
	}
}

func TestNoProgram(t *testing.T) {
	var c Collector
	if _, err := c.Collect(t.Context(), "notices.go"); err == nil || !strings.HasPrefix(err.Error(), "reading the modules of notices.go: ") {
		t.Errorf("error is %v", err)
	}
}

func TestCompiled(t *testing.T) {
	got, err := compiled(&debug.BuildInfo{GoVersion: "go1.26.1 X:nodwarf5", Main: debug.Module{Path: "main", Version: "(devel)"},
		Deps: []*debug.Module{
			{Path: "a", Version: "v1.0.0", Sum: "h1:a="},
			{Path: "b", Version: "v1.0.0", Replace: &debug.Module{Path: "c", Version: "v2.0.0+incompatible", Sum: "h1:c="}},
		}})
	want := map[module]string{{stdlib, "go1.26.1"}: "", {"a", "v1.0.0"}: "h1:a=", {"c", "v2.0.0+incompatible"}: "h1:c="}
	if diff := cmp.Diff(fmt.Sprint(want), fmt.Sprint(got)); err != nil || diff != "" {
		t.Errorf("%v, modules (-want +got):\n%s", err, diff)
	}
	_, err = compiled(&debug.BuildInfo{Deps: []*debug.Module{{Path: "a", Version: "v1.0.0", Replace: &debug.Module{Path: "./a"}}}})
	if err == nil || !strings.HasPrefix(err.Error(), "a v1.0.0 has no checksum") {
		t.Errorf("for a directory: %v", err)
	}
}

func TestReadDownloads(t *testing.T) {
	wanted := map[module]string{{"a", "v1"}: "h1:a=", {"b", "v1"}: "h1:b=", {"c", "v1"}: "h1:c="}
	directories := map[module]string{}
	err := readDownloads(strings.NewReader(`{"Path": "a", "Version": "v1", "Dir": "/cache/a", "Sum": "h1:a="}
{"Path": "b", "Version": "v1", "Dir": "/cache/b", "Sum": "h1:other="} {"Path": "c", "Version": "v1", "Error": "not found"}`), wanted, directories)
	want := "downloading b v1: checksum is h1:other=, but a program was built with h1:b=\ndownloading c v1: not found"
	if err == nil || err.Error() != want {
		t.Errorf("error is %v\nwant %s", err, want)
	}
	if len(directories) != 1 || directories[module{"a", "v1"}] != "/cache/a" {
		t.Errorf("directories: %v", directories)
	}
}
