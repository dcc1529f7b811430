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
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// TestPublishedTemplates validates all objects, with the definitions of the providers that tools/providers pins.
func TestPublishedTemplates(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "go", "mod", "download", "-json")
	cmd.Dir = "../../tools/providers"
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("downloading the providers: %v: %s", err, out)
	}
	var definitions []*apiextensionsv1.CustomResourceDefinition
	for modules := json.NewDecoder(strings.NewReader(string(out))); ; {
		var module struct{ Path, Version, Dir string }
		if err := modules.Decode(&module); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		found := definitionsIn(t, module.Dir)
		t.Logf("%s %s has %d kinds", module.Path, module.Version, len(found))
		definitions = append(definitions, found...)
	}
	checkTemplates(t, definitions)
}

// definitionsIn reads the definitions of infrastructure in the source of a provider.
func definitionsIn(t *testing.T, dir string) (definitions []*apiextensionsv1.CustomResourceDefinition) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Base(filepath.Dir(path)) != "bases" || !strings.HasPrefix(filepath.Base(path), infrastructureGroup+"_") {
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
