//go:build published

package clusterctl

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// TestPublishedTemplates validates all objects, with the definitions of the providers that tools/providers pins.
func TestPublishedTemplates(t *testing.T) {
	checkTemplates(t, definitionsOf(t, "../../tools/providers", "*/bases/"+infrastructureGroup+"_*.yaml"))
}

// TestPublishedChart validates the objects of other projects' kinds in the golden files of the chart, with the definitions of those that
// tools/chartkinds pins.
func TestPublishedChart(t *testing.T) {
	definitions := definitionsOf(t, "../../tools/chartkinds", "*/crds/cert-manager.io_*.yaml",
		"*/prometheus-operator-crd/monitoring.coreos.com_*.yaml", "*/crd/standard/gateway.networking.k8s.io_*s.yaml")
	validated := map[string]bool{}
	paths, err := filepath.Glob("../chart/testdata/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for document := range strings.SplitSeq(string(raw), "\n---\n") {
			object := &unstructured.Unstructured{}
			if err := yaml.UnmarshalStrict([]byte(document), &object.Object); err != nil {
				t.Fatalf("%s: %v in\n%s", path, err, document)
			}
			if object.Object != nil && validate(t, definitions, object) {
				validated[object.GetKind()] = true
			}
		}
	}
	for _, kind := range []string{"Certificate", "ServiceMonitor", "TLSRoute"} {
		if !validated[kind] {
			t.Errorf("no %s was validated, but %v", kind, validated)
		}
	}
}

// definitionsOf reads the definitions in the source of the modules that a go.mod requires. The patterns are those of path.Match, for the
// ends of their paths.
func definitionsOf(t *testing.T, dir string, patterns ...string) (definitions []*apiextensionsv1.CustomResourceDefinition) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "mod", "download", "-json")
	cmd.Dir = dir
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("downloading the modules of %s: %v: %s", dir, err, out)
	}
	for modules := json.NewDecoder(strings.NewReader(string(out))); ; {
		var module struct{ Path, Version, Dir string }
		if err := modules.Decode(&module); errors.Is(err, io.EOF) {
			return definitions
		} else if err != nil {
			t.Fatal(err)
		}
		found := definitionsIn(t, module.Dir, patterns)
		t.Logf("%s %s has %d kinds", module.Path, module.Version, len(found))
		definitions = append(definitions, found...)
	}
}

func definitionsIn(t *testing.T, dir string, patterns []string) (definitions []*apiextensionsv1.CustomResourceDefinition) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !slices.ContainsFunc(patterns, func(pattern string) bool { return endMatches(pattern, path) }) {
			return err
		}
		raw, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		definition := &apiextensionsv1.CustomResourceDefinition{}
		definitions = append(definitions, definition)
		return yaml.Unmarshal(raw, definition)
	})
	if err != nil {
		t.Fatal(err)
	}
	return definitions
}

// endMatches reports whether a pattern matches the end of a path that has as many elements.
func endMatches(pattern, path string) bool {
	elements := strings.Split(path, "/")
	n := min(len(elements), strings.Count(pattern, "/")+1)
	matches, err := filepath.Match(pattern, strings.Join(elements[len(elements)-n:], "/"))
	return err == nil && matches
}
