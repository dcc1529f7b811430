// Package layout says what an installer image consists of: which files of a release go where in the image, and which
// scripts are added. It knows nothing of registries, archives or downloads.
package layout

import (
	"fmt"
	"strings"
)

// Kind sorts a release's files into what the builder treats alike.
type Kind int

const (
	// Program is what must be in every image: the distribution itself.
	Program Kind = iota
	// Images are container images for machines without a registry; an image may be built without them.
	Images
	// Script is the release's install script. Published checksum files do not list it.
	Script
	// Checksums is the release's checksum file.
	Checksums
)

// Artefact is one file of a release and its place in the image.
type Artefact struct {
	// Kind tells how the builder treats it.
	Kind Kind
	// Names are the file's names in a release, most wanted first; the first that exists is taken.
	Names []string
	// Path is the file's place in the image, relative to its root. Empty means the name under which it was found.
	Path string
	// Mode are its permission bits in the image.
	Mode int64
}

// Definition describes the installer images of one distribution.
type Definition struct {
	// Runtime is the name of the distribution as in versions and units: k3s or rke2.
	Runtime string
	// Title is its name for people.
	Title string
	// RunScript becomes /run.sh.
	RunScript []byte
	// Artefacts are the files for one architecture, named as Go names it.
	Artefacts func(arch string) []Artefact
}

// Architectures are those that the images can be built for.
var Architectures = []string{"amd64", "arm64"}

// Tag is the image tag of a version. A tag may not contain "+".
func Tag(version string) string {
	return strings.ReplaceAll(version, "+", "-")
}

// Repository is the image's usual name, without a registry.
func (d Definition) Repository() string {
	return "rancher/system-agent-installer-" + d.Runtime
}

// ChecksumsArtefact is the checksum file of one architecture; install scripts on the machine expect it under this name.
func ChecksumsArtefact(arch string) Artefact {
	name := fmt.Sprintf("sha256sum-%s.txt", arch)
	return Artefact{Kind: Checksums, Names: []string{name}, Path: name, Mode: 0o644}
}

// ScriptArtefact is the release's install script.
func ScriptArtefact() Artefact {
	return Artefact{Kind: Script, Names: []string{"install.sh"}, Path: "installer.sh", Mode: 0o755}
}

// ImageArchives are the names a tarball of container images may have, best compression first.
func ImageArchives(stem string) []string {
	return []string{stem + ".tar.zst", stem + ".tar.gz", stem + ".tar"}
}
