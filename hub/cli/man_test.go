package cli

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"

	"github.com/drover-dev/drover/packaging/man"
)

var update = flag.Bool("update", false, "rewrite the manual pages")

// manDir is where the manual pages are. They are written by this test and not by a program, which would take all of Kubernetes to build.
const manDir = "../../packaging/man"

// TestManPages: the manual pages say what the commands' help says.
func TestManPages(t *testing.T) {
	// Main does so, too: the Kubernetes libraries have flags of their own.
	pflag.CommandLine = pflag.NewFlagSet("hub", pflag.ContinueOnError)
	root := newRoot()
	setDefaults(root)
	man.Prepare(root)
	date := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	dir := t.TempDir()
	if err := doc.GenManTree(root, &doc.GenManHeader{Section: "1", Source: "Drover", Manual: "Drover hub", Date: &date}, dir); err != nil {
		t.Fatal(err)
	}
	want, got := pages(t, dir), pages(t, manDir)
	if *update {
		for name := range got {
			if err := os.Remove(filepath.Join(manDir, name)); err != nil {
				t.Fatal(err)
			}
		}
		for name, text := range want {
			if err := os.WriteFile(filepath.Join(manDir, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		return
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the pages are out of date; rewrite them with: go test ./hub/cli -run TestManPages -update\n%s", diff)
	}
}

// TestPage checks that docs/hub-commands.md lists every command.
func TestPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/hub-commands.md")
	if err != nil {
		t.Fatal(err)
	}
	var check func(*cobra.Command)
	check = func(cmd *cobra.Command) {
		if cmd.Hidden {
			return
		}
		if cmd.Runnable() && cmd.HasParent() && !strings.Contains(string(page), "`"+cmd.CommandPath()) {
			t.Errorf("%s is not in docs/hub-commands.md", cmd.CommandPath())
		}
		for _, child := range cmd.Commands() {
			check(child)
		}
	}
	check(newRoot())
}

// setDefaults sets defaults that depend on who generates the pages to those of root.
func setDefaults(cmd *cobra.Command) {
	if f := cmd.Flags().Lookup("data-dir"); f != nil {
		f.DefValue = rootDataDir
	}
	for _, child := range cmd.Commands() {
		setDefaults(child)
	}
}

func pages(t *testing.T, dir string) map[string]string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "hub*.1"))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, path := range paths {
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		out[filepath.Base(path)] = string(raw)
	}
	return out
}
