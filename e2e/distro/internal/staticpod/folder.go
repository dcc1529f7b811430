package staticpod

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/drover-dev/drover/e2e/distro/internal/pki"
)

// Folder is where a kubelet finds manifests.
type Folder string

func (f Folder) file(component string) string { return filepath.Join(string(f), component+".yaml") }

// Has reports whether a component's manifest is this one.
func (f Folder) Has(component string, raw []byte) bool {
	have, err := os.ReadFile(f.file(component))
	return err == nil && bytes.Equal(have, raw)
}

// Write writes a component's manifest, unless it is there already. A kubelet starts the pod, and ends the one of another manifest.
func (f Folder) Write(component string, raw []byte) error {
	if f.Has(component, raw) {
		return nil
	}
	return pki.WriteFile(f.file(component), raw, 0o644)
}

// Remove removes the manifests of components.
func (f Folder) Remove(components ...string) error {
	var faults []error
	for _, c := range components {
		if err := os.Remove(f.file(c)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			faults = append(faults, err)
		}
	}
	return errors.Join(faults...)
}

// Metadata is what a component's manifest says of its pod, nothing if there is none.
func (f Folder) Metadata(component string) (uid string, annotations map[string]string) {
	var pod corev1.Pod
	raw, err := os.ReadFile(f.file(component))
	if err != nil || yaml.Unmarshal(raw, &pod) != nil {
		return "", nil
	}
	return string(pod.UID), pod.Annotations
}
