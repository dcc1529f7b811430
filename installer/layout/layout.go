// Package layout defines what an installer image consists of: which files of a release go where in the image, and which scripts are added.
// It knows no registries, archives or downloads.
package layout

import (
	"fmt"
	"strings"
)

// Artifact is one file of a release and its place in the image.
type Artifact struct {
	// Images is set for container images for machines without a registry, which are optional.
	Images bool
	// Names are the file's names in a release, preferred first; the first that exists is used.
	Names []string
	// Path is the file's path in the image, relative to its root; the default is the name under which it was found.
	Path string
	// Mode are its permission bits in the image.
	Mode int64
}

// Definition describes the installer images of one distribution.
type Definition struct {
	// Runtime is the name of the distribution as in versions and units: k3s or rke2.
	Runtime string
	// Title is its name in messages: k3s or RKE2.
	Title string
	// RunScript becomes /run.sh.
	RunScript []byte
	// Artifacts are the files for one architecture, named as Go names it.
	Artifacts func(arch string) []Artifact
}

// Architectures are those that the images can be built for.
var Architectures = []string{"amd64", "arm64"}

// Tag returns the image tag of a version: a tag must not contain "+".
func Tag(version string) string {
	return strings.ReplaceAll(version, "+", "-")
}

// Repository returns the image's default name, without a registry.
func (d Definition) Repository() string {
	return "rancher/system-agent-installer-" + d.Runtime
}

// ChecksumsArtifact returns the checksum file of one architecture; install scripts on the machine expect it under this name.
func ChecksumsArtifact(arch string) Artifact {
	name := fmt.Sprintf("sha256sum-%s.txt", arch)
	return Artifact{Names: []string{name}, Path: name, Mode: 0o644}
}

// ScriptArtifact returns the release's install script.
func ScriptArtifact() Artifact {
	return Artifact{Names: []string{"install.sh"}, Path: "installer.sh", Mode: 0o755}
}

// ImageArchives returns the names that an archive of container images may have, best compression first.
func ImageArchives(stem string) []string {
	return []string{stem + ".tar.zst", stem + ".tar.gz", stem + ".tar"}
}
