// Package image makes installer images: it packs the files of a release, compares them with the release's checksums and
// puts the outcome where it is wanted. The same files give the same digest, byte for byte, whenever and wherever it runs.
package image

import (
	"context"
	"fmt"
	"io"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/drover-dev/drover/installer/artefact"
	"github.com/drover-dev/drover/installer/layout"
	"github.com/drover-dev/drover/installer/progress"
)

// ImagesMode tells whether the release's container images become part of the installer image.
type ImagesMode string

const (
	// ImagesAuto takes them from a folder that has them and does not download them.
	ImagesAuto ImagesMode = "auto"
	// ImagesAlways fails without them.
	ImagesAlways ImagesMode = "always"
	// ImagesNever leaves them out.
	ImagesNever ImagesMode = "never"
)

// Options say what is to be built.
type Options struct {
	Definition    layout.Definition
	Version       string
	Architectures []string
	// Source is the release.
	Source artefact.Source
	// Checksums is the name of the checksum file in the release, "{arch}" standing for the architecture; empty means the
	// usual name.
	Checksums string
	// Script overrides the install.sh of the release.
	Script *artefact.File
	// ScriptSum is the sha256 that the install script must have; empty means what the checksum file says, if it does.
	ScriptSum string
	// Images is ImagesAuto when empty.
	Images ImagesMode
	// MoreImages are names of further tarballs of container images in the release, "{arch}" as above.
	MoreImages []string
	// TempDir holds the layers; the images read from it as long as they are used.
	TempDir string
	// Progress reports long copies; may be nil.
	Progress *progress.Reporter
	// Notes receives what a person should know and no error is; may be nil.
	Notes io.Writer
}

// Image is the image of one architecture.
type Image struct {
	Arch string
	v1.Image
}

// Build makes the images of all architectures.
func Build(ctx context.Context, opts Options) ([]Image, error) {
	if opts.Notes == nil {
		opts.Notes = io.Discard
	}
	images := make([]Image, 0, len(opts.Architectures))
	for _, arch := range opts.Architectures {
		parts, err := gather(ctx, opts, arch)
		if err != nil {
			return nil, fmt.Errorf("gathering the %s release for %s: %w", opts.Definition.Title, arch, err)
		}
		config := v1.Config{Labels: labels("system-agent-installer-"+opts.Definition.Runtime,
			"Installs "+opts.Definition.Title+" on a machine; run by its system-agent", opts.Version)}
		img, err := assemble(ctx, packing{opts.TempDir, opts.Progress}, arch, config, parts)
		if err != nil {
			return nil, fmt.Errorf("building the image for %s: %w", arch, err)
		}
		images = append(images, Image{Arch: arch, Image: img})
	}
	return images, nil
}

// packing is where layers are made.
type packing struct {
	dir      string
	progress *progress.Reporter
}

func labels(title, description, version string) map[string]string {
	return map[string]string{
		"org.opencontainers.image.title":       title,
		"org.opencontainers.image.description": description,
		"org.opencontainers.image.version":     version,
		"org.opencontainers.image.source":      "https://github.com/drover-dev/drover",
		"org.opencontainers.image.created":     epoch.Format("2006-01-02T15:04:05Z"),
	}
}

// assemble makes one image out of its layers.
func assemble(ctx context.Context, at packing, arch string, config v1.Config, parts []part) (v1.Image, error) {
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	img, err := mutate.ConfigFile(img, &v1.ConfigFile{
		Architecture: arch,
		OS:           "linux",
		Created:      v1.Time{Time: epoch},
		RootFS:       v1.RootFS{Type: "layers"},
		Config:       config,
	})
	if err != nil {
		return nil, fmt.Errorf("setting the configuration: %w", err)
	}
	for _, p := range parts {
		packed, err := writeLayer(ctx, at.dir, p.entries, at.progress)
		if err != nil {
			return nil, err
		}
		img, err = mutate.Append(img, mutate.Addendum{
			Layer:   packed,
			History: v1.History{Created: v1.Time{Time: epoch}, CreatedBy: "installer build", Comment: p.comment},
		})
		if err != nil {
			return nil, fmt.Errorf("adding a layer: %w", err)
		}
	}
	return img, nil
}

// Index joins the images of all architectures. It is made for a single one too: a machine of another architecture is then
// told so, instead of being given programs it cannot run.
func Index(images []Image) (v1.ImageIndex, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, img := range images {
		digest, err := img.Digest()
		if err != nil {
			return nil, err
		}
		size, err := img.Size()
		if err != nil {
			return nil, err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: img.Image,
			Descriptor: v1.Descriptor{
				MediaType: types.OCIManifestSchema1, Digest: digest, Size: size,
				Platform: &v1.Platform{OS: "linux", Architecture: img.Arch},
			},
		})
	}
	return index, nil
}
