// Package image builds installer images and the image of the cluster-agent: it collects the files of a release with their checksums, which
// package oci verifies and packs. Builds are reproducible: the same files give the same digest.
package image

import (
	"context"
	"fmt"
	"io"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/drover-dev/drover/installer/artifact"
	"github.com/drover-dev/drover/installer/layout"
	"github.com/drover-dev/drover/installer/oci"
	"github.com/drover-dev/drover/installer/progress"
)

// createdBy names the program in the history of images.
const createdBy = "installer build"

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
	// Created is the time of the files and images; the default is the beginning of 1970.
	Created time.Time
	// TempDir holds the layers; it must exist as long as the images are used.
	TempDir string
	// Progress reports long copies; nil reports none.
	Progress *progress.Reporter
	// Notes receives warnings, a line each; nil drops them.
	Notes io.Writer
}

// Build builds the images of all architectures.
func Build(ctx context.Context, opts Options) ([]oci.Image, error) {
	if opts.Notes == nil {
		opts.Notes = io.Discard
	}
	builder := oci.Builder{Dir: opts.TempDir, Created: opts.Created, CreatedBy: createdBy, Progress: opts.Progress}
	images := make([]oci.Image, 0, len(opts.Architectures))
	for _, arch := range opts.Architectures {
		parts, err := collect(ctx, opts, arch)
		if err != nil {
			return nil, fmt.Errorf("collecting the %s release for %s: %w", opts.Definition.Title, arch, err)
		}
		config := v1.Config{Labels: builder.Labels("system-agent-installer-"+opts.Definition.Runtime,
			"Installs "+opts.Definition.Title+" on a machine; run by its system-agent", opts.Version)}
		img, err := builder.Image(ctx, arch, config, parts)
		if err != nil {
			return nil, fmt.Errorf("building the image for %s: %w", arch, err)
		}
		images = append(images, img)
	}
	return images, nil
}
