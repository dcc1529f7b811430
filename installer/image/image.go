// Package image builds installer images: it packs the files of a release, verifies the release's checksums, and pushes the image or writes
// it to files. Builds are reproducible: the same files give the same digest.
package image

import (
	"context"
	"fmt"
	"io"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/drover-dev/drover/installer/artifact"
	"github.com/drover-dev/drover/installer/layout"
	"github.com/drover-dev/drover/installer/progress"
)

// ImagesMode is whether the release's container images become part of the installer image.
type ImagesMode string

const (
	// ImagesAuto uses them if they are in a local directory, and does not download them.
	ImagesAuto ImagesMode = "auto"
	// ImagesAlways fails without them.
	ImagesAlways ImagesMode = "always"
	// ImagesNever leaves them out.
	ImagesNever ImagesMode = "never"
)

// Options of Build. Definition, Version, Architectures, Source and TempDir are required.
type Options struct {
	// Definition is that of the distribution.
	Definition layout.Definition
	// Version of the release, such as v1.36.3+k3s1, for labels and history.
	Version string
	// Architectures are those to build for, as Go names them.
	Architectures []string
	// Source is the release.
	Source artifact.Source
	// Checksums is the name of the checksum file in the release, in which "{arch}" is replaced by the architecture; the default is that of
	// layout.ChecksumsArtifact.
	Checksums string
	// Script replaces the install.sh of the release; the default is that.
	Script *artifact.File
	// ScriptChecksum is the SHA-256 that the install script must have; the default is that of the checksum file, if it lists the script.
	ScriptChecksum string
	// Images is whether container images are included; the default is ImagesAuto.
	Images ImagesMode
	// AdditionalImages are names of further archives of container images in the release, with "{arch}" as above.
	AdditionalImages []string
	// TempDir holds the layers; it must exist as long as the images are used.
	TempDir string
	// Progress reports long copies; nil reports none.
	Progress *progress.Reporter
	// Notes receives warnings, a line each; nil drops them.
	Notes io.Writer
}

// Image is the image of one architecture.
type Image struct {
	// Arch is the architecture as Go names it.
	Arch string
	v1.Image
}

// Build builds the images of all architectures.
func Build(ctx context.Context, opts Options) ([]Image, error) {
	if opts.Notes == nil {
		opts.Notes = io.Discard
	}
	images := make([]Image, 0, len(opts.Architectures))
	for _, arch := range opts.Architectures {
		parts, err := collect(ctx, opts, arch)
		if err != nil {
			return nil, fmt.Errorf("collecting the %s release for %s: %w", opts.Definition.Title, arch, err)
		}
		config := v1.Config{Labels: labels("system-agent-installer-"+opts.Definition.Runtime,
			"Installs "+opts.Definition.Title+" on a machine; run by its system-agent", opts.Version)}
		img, err := assemble(ctx, layerOptions{opts.TempDir, opts.Progress}, arch, config, parts)
		if err != nil {
			return nil, fmt.Errorf("building the image for %s: %w", arch, err)
		}
		images = append(images, Image{Arch: arch, Image: img})
	}
	return images, nil
}

// layerOptions are the directory of layers and the progress of writing them.
type layerOptions struct {
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

// assemble writes the layers of one image.
func assemble(ctx context.Context, options layerOptions, arch string, config v1.Config, parts []layerSpec) (v1.Image, error) {
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
		packed, err := writeLayer(ctx, options.dir, p.entries, options.progress)
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

// Index combines the images of all architectures, also if there is one only: pulling it for another architecture fails then, instead of
// returning programs that cannot run.
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
