package render

import (
	"encoding/base64"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/drover-dev/drover/plans"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// golden compares text with a file of testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v; go test -update writes it", err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s differs; go test -update rewrites it (-want +got):\n%s", path, diff)
	}
}

// scripts are contents that a golden file only names.
var scripts = map[string]string{string(idempotentSh): "scripts/idempotent.sh", string(idempotentPs1): "scripts/idempotent.ps1"}

// show writes a plan for people to read.
func show(plan plans.Plan, problems Problems) string {
	var out strings.Builder
	for _, p := range problems {
		kind := "left out"
		switch {
		case p.Fatal:
			kind = "error"
		case p.Kept:
			kind = "doubt"
		}
		fmt.Fprintf(&out, "%s %s\n", kind, p)
	}
	for _, f := range plan.Files {
		if f.Action == plans.ActionDelete {
			fmt.Fprintf(&out, "delete %s\n", f.Path)
			continue
		}
		fmt.Fprintf(&out, "file %s", f.Path)
		if f.Permissions != "" {
			fmt.Fprintf(&out, " %s", f.Permissions)
		}
		if f.Dynamic {
			out.WriteString(" dynamic")
		}
		if f.Minor {
			out.WriteString(" minor")
		}
		out.WriteString("\n")
		content, err := base64.StdEncoding.DecodeString(f.Content)
		if err != nil {
			fmt.Fprintf(&out, "    %v\n", err)
		}
		if script, ok := scripts[string(content)]; ok {
			fmt.Fprintf(&out, "    (%s)\n", script)
			continue
		}
		for line := range strings.Lines(string(content)) {
			fmt.Fprintf(&out, "    %s\n", strings.TrimSuffix(line, "\n"))
		}
	}
	for _, i := range plan.Instructions {
		args := strings.ReplaceAll(strings.Join(i.Args, " "), checkHostSh, "(scripts/check-host.sh)")
		fmt.Fprintf(&out, "run %s: image %s: %s %s\n", i.Name, i.Image, i.Command, args)
		for _, e := range i.Env {
			fmt.Fprintf(&out, "    %s\n", e)
		}
	}
	for _, i := range plan.PeriodicInstructions {
		fmt.Fprintf(&out, "every %d s run %s: %s %s\n", i.PeriodSeconds, i.Name, i.Command, strings.Join(i.Args, " "))
	}
	for _, name := range slices.Sorted(maps.Keys(plan.Probes)) {
		p := plan.Probes[name]
		fmt.Fprintf(&out, "probe %s: %s\n", name, p.HTTPGet.URL)
		if p.HTTPGet.CACert != "" {
			fmt.Fprintf(&out, "    ca %s\n", p.HTTPGet.CACert)
		}
		if p.HTTPGet.ClientCert != "" {
			fmt.Fprintf(&out, "    as %s, %s\n", p.HTTPGet.ClientCert, p.HTTPGet.ClientKey)
		}
	}
	if plan.Error != "" {
		fmt.Fprintf(&out, "not to be delivered: %s\n", plan.Error)
	}
	return out.String()
}
