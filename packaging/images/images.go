// Package images builds Drover's container images without Docker: the hub, the system-agent, the cluster-agent, and the installers of k3s
// and RKE2. It packs programs that are built already, and builds none. Builds are reproducible: the same programs and options give the same
// digests. The licenses of what is compiled into the programs are read with the go command, see package notices.
package images

import (
	"compress/gzip"
	"context"
	"fmt"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"

	"github.com/drover-dev/drover/installer/layout"
	"github.com/drover-dev/drover/installer/oci"
	"github.com/drover-dev/drover/installer/progress"
	"github.com/drover-dev/drover/packaging/images/sbom"
	"github.com/drover-dev/drover/packaging/notices"
)

const (
	// module is the Go module of the programs.
	module = "github.com/drover-dev/drover"
	// license of the programs, k3s and RKE2, as SPDX names it.
	license = "Apache-2.0"
)

// Options of Build. Version, Architectures, Binaries, License, Certificates and TempDir are required.
type Options struct {
	// Version is that of the programs. With "-" for "+" it is the tag of the images, those of installers aside.
	Version string
	// Revision is the commit that the programs were built from; empty leaves it out.
	Revision string
	// Architectures are those to build for, as Go names them.
	Architectures []string
	// Binaries is a directory with the programs as "make cross" leaves them: linux-<architecture>/hub and so on.
	Binaries string
	// License is the text of Drover's own license.
	License []byte
	// Certificates are the certificate authorities of all images but installers.
	Certificates Certificates
	// Releases are those to build installer images for.
	Releases []Release
	// Only are the names of the images to build; empty builds all. See Names.
	Only []string
	// Created is the time of the files and images; the default is the beginning of 1970.
	Created time.Time
	// TempDir holds the layers; it must exist as long as the images are used.
	TempDir string
	// Progress reports long copies; nil reports none.
	Progress *progress.Reporter
}

// Release is a release of k3s or RKE2.
type Release struct {
	// Definition is that of the distribution.
	Definition layout.Definition
	// Version of the release, such as v1.36.3+k3s1.
	Version string
	// Directory has the files of the release, install.sh among them.
	Directory string
}

// Image is an image of all architectures.
type Image struct {
	// Name is one of Names, or system-agent-installer-<distribution>.
	Name string
	// Repository is the default name, without a registry.
	Repository string
	// Tag is the version with "-" for "+".
	Tag string
	// Architectures are the images of each architecture.
	Architectures []oci.Image
	// Index has all of them.
	Index v1.ImageIndex
	// Documents list what is in each of Architectures, in the same order.
	Documents []Document

	title, description, version string
}

// Build builds the images.
func Build(ctx context.Context, opts Options) ([]Image, error) {
	builder := oci.Builder{
		Dir: opts.TempDir, Created: opts.Created, CreatedBy: "drover images", Compression: gzip.DefaultCompression, Progress: opts.Progress,
	}
	var built []Image
	var collector notices.Collector
	for _, p := range programs {
		if !opts.wants(p.name) {
			continue
		}
		img, err := p.build(ctx, builder, &collector, opts)
		if err != nil {
			return nil, fmt.Errorf("building %s: %w", p.name, err)
		}
		built = append(built, img)
	}
	for _, r := range opts.Releases {
		img, err := r.build(ctx, opts)
		if err != nil {
			return nil, fmt.Errorf("building the installer of %s %s: %w", r.Definition.Title, r.Version, err)
		}
		built = append(built, img)
	}
	for i := range built {
		if err := built[i].finish(builder, opts); err != nil {
			return nil, fmt.Errorf("finishing %s: %w", built[i].Name, err)
		}
	}
	return built, nil
}

// Document is a software bill of materials.
type Document struct {
	// SPDX is an SPDX 2.3 document as JSON.
	SPDX []byte
	// Artifact attaches it to the image of one architecture.
	Artifact v1.Image
}

// finish sets the annotations, makes the index and lists the contents.
func (i *Image) finish(builder oci.Builder, opts Options) error {
	annotations := builder.Labels(i.title, i.description, i.version)
	annotations["org.opencontainers.image.licenses"] = license
	annotations["org.opencontainers.image.base.name"] = "scratch"
	if opts.Revision != "" {
		annotations["org.opencontainers.image.revision"] = opts.Revision
	}
	for n := range i.Architectures {
		i.Architectures[n] = i.Architectures[n].Annotate(annotations)
	}
	index, err := oci.Index(i.Architectures)
	if err != nil {
		return err
	}
	// The function returns what it gets.
	i.Index = mutate.Annotations(index, annotations).(v1.ImageIndex)
	for _, img := range i.Architectures {
		document, err := i.document(builder, img, opts)
		if err != nil {
			return err
		}
		i.Documents = append(i.Documents, document)
	}
	return nil
}

func (i *Image) document(builder oci.Builder, img oci.Image, opts Options) (Document, error) {
	about := subject(img.Arch, opts.Version, opts.Created)
	about.Version, about.Certificates = i.version, opts.Certificates.Version
	raw, err := sbom.Generate(sbom.Image{Image: img, Repository: i.Repository, Subject: about})
	if err != nil {
		return Document{}, err
	}
	artifact, err := builder.Artifact(img, sbom.MediaType, raw)
	return Document{SPDX: raw, Artifact: artifact}, err
}

// ArchiveDocument returns the software bill of materials, as Document.SPDX, of an archive of programs of a release, as tar and gzip make
// it.
func ArchiveDocument(file, name, version, arch string, created time.Time) ([]byte, error) {
	return sbom.GenerateArchive(sbom.Archive{Name: name, File: file, Subject: subject(arch, version, created)})
}

// subject is what all documents of a release say.
func subject(arch, version string, created time.Time) sbom.Subject {
	if created.IsZero() {
		created = time.Unix(0, 0)
	}
	return sbom.Subject{Arch: arch, Version: version, License: license, Module: module, Created: created, Tool: "drover-images-" + version}
}
