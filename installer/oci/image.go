// Package oci writes container images without Docker: layers of files, images, indexes of several architectures, and their outputs: a
// registry, an OCI layout, or a tarball. What it writes depends on the files and options only: the same ones give the same digest, on any
// machine and at any time. It knows nothing of what the images are for.
package oci

import (
	"context"
	"fmt"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/drover-dev/drover/installer/progress"
)

// Builder writes layers and images. Dir is required.
type Builder struct {
	// Dir holds the layers; it must exist as long as the images are used.
	Dir string
	// Created is the time of every entry and of the images, to the second; the default is the beginning of 1970.
	Created time.Time
	// CreatedBy names the program in the history of the images.
	CreatedBy string
	// Compression is a level of compress/gzip. 0 is the fastest one, which is enough for files that are compressed already.
	Compression int
	// Progress reports long copies; nil reports none.
	Progress *progress.Reporter
}

// Layer is what a layer contains.
type Layer struct {
	// Comment describes the layer in the history.
	Comment string
	// Entries in any order; each path may occur once.
	Entries []Entry
}

// Image is the image of one architecture.
type Image struct {
	// Arch is the architecture as Go names it.
	Arch string
	v1.Image
}

// Labels returns the labels of an image that the OCI image specification defines (annotations.md). Annotations have the same names.
func (b Builder) Labels(title, description, version string) map[string]string {
	return map[string]string{
		"org.opencontainers.image.title":       title,
		"org.opencontainers.image.description": description,
		"org.opencontainers.image.version":     version,
		"org.opencontainers.image.source":      "https://github.com/drover-dev/drover",
		"org.opencontainers.image.created":     b.created().Format(time.RFC3339),
	}
}

func (b Builder) created() time.Time {
	if b.Created.IsZero() {
		return time.Unix(0, 0).UTC()
	}
	return b.Created.UTC().Truncate(time.Second)
}

// Image writes the layers of an image for Linux. Empty layers are left out.
func (b Builder) Image(ctx context.Context, arch string, config v1.Config, layers []Layer) (Image, error) {
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	img, err := mutate.ConfigFile(img, &v1.ConfigFile{
		Architecture: arch,
		OS:           "linux",
		Created:      v1.Time{Time: b.created()},
		RootFS:       v1.RootFS{Type: "layers"},
		Config:       config,
	})
	if err != nil {
		return Image{}, fmt.Errorf("setting the configuration: %w", err)
	}
	for _, l := range layers {
		if len(l.Entries) == 0 {
			continue
		}
		packed, err := b.writeLayer(ctx, l.Entries)
		if err != nil {
			return Image{}, err
		}
		img, err = mutate.Append(img, mutate.Addendum{
			Layer:   packed,
			History: v1.History{Created: v1.Time{Time: b.created()}, CreatedBy: b.CreatedBy, Comment: l.Comment},
		})
		if err != nil {
			return Image{}, fmt.Errorf("adding a layer: %w", err)
		}
	}
	return Image{Arch: arch, Image: img}, nil
}

// Annotate sets annotations of the image's manifest.
func (i Image) Annotate(annotations map[string]string) Image {
	// The function returns what it gets.
	return Image{Arch: i.Arch, Image: mutate.Annotations(i.Image, annotations).(v1.Image)}
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
