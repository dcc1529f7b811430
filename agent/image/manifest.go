package image

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/dustin/go-humanize"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

const (
	// maxManifestBytes bounds a manifest; registries accept none that is larger.
	maxManifestBytes = 4 << 20
	// maxIndexDepth bounds how many indexes may lead to a manifest.
	maxIndexDepth = 4
)

// limits bound what one image may take of the machine.
type limits struct {
	// layers is the largest number of layers.
	layers int
	// bytes is the largest size of all layers together, as they are sent.
	bytes int64
	// unpackedBytes is the largest size of all layers together, uncompressed.
	unpackedBytes int64
}

// defaultLimits leave room for installer images that hold all images of a distribution.
var defaultLimits = limits{layers: 256, bytes: 16 << 30, unpackedBytes: 32 << 30}

func (l limits) checkLayers(count int) error {
	if count > l.layers {
		return fmt.Errorf("the image has %d layers, the limit is %d", count, l.layers)
	}
	return nil
}

// manifest is that of an image or an index; exactly one of the two is set.
type manifest struct {
	image *v1.Manifest
	index *v1.IndexManifest
}

// decodeManifest decodes a manifest. contentType is that of the registry's response; a media type in the manifest takes precedence, and
// without either the fields decide.
func decodeManifest(raw []byte, contentType types.MediaType) (manifest, error) {
	image, err := v1.ParseManifest(bytes.NewReader(raw))
	if err != nil {
		return manifest{}, fmt.Errorf("decoding the manifest: %w", err)
	}
	index, err := v1.ParseIndexManifest(bytes.NewReader(raw))
	if err != nil {
		return manifest{}, fmt.Errorf("decoding the manifest: %w", err)
	}
	switch mediaType := cmp.Or(image.MediaType, contentType); {
	case image.SchemaVersion == 1 || mediaType.IsSchema1():
		return manifest{}, errors.New("the manifest is of Docker schema 1, which cannot be verified: push the image again with a current tool")
	case mediaType.IsIndex() || !mediaType.IsImage() && index.Manifests != nil:
		return manifest{index: index}, nil
	case mediaType.IsImage() || image.Layers != nil:
		return manifest{image: image}, nil
	default:
		return manifest{}, fmt.Errorf("the manifest is not that of an image: media type %q", mediaType)
	}
}

// resolveLayers returns the layers of an image, the lowest first. It follows indexes to the platform's image; get returns the manifest of a
// tag or digest.
func resolveLayers(id string, platform v1.Platform, bounds limits, get func(id string) (manifest, error)) ([]v1.Descriptor, error) {
	for range maxIndexDepth {
		m, err := get(id)
		if err != nil {
			return nil, err
		}
		if m.image != nil {
			return checkedLayers(m.image, bounds)
		}
		descriptor, err := selectPlatform(m.index, platform)
		if err != nil {
			return nil, err
		}
		id = descriptor.Digest.String()
	}
	return nil, fmt.Errorf("more than %d nested image indexes", maxIndexDepth)
}

// selectPlatform returns the first image of an index that runs on a platform.
func selectPlatform(index *v1.IndexManifest, platform v1.Platform) (v1.Descriptor, error) {
	var available []string
	for _, descriptor := range index.Manifests {
		if descriptor.Platform == nil {
			if len(index.Manifests) == 1 {
				return descriptor, nil
			}
			continue
		}
		if descriptor.Platform.Satisfies(platform) {
			return descriptor, nil
		}
		available = append(available, descriptor.Platform.String())
	}
	return v1.Descriptor{}, fmt.Errorf("the image is not available for %s, only for %s", platform, strings.Join(available, ", "))
}

// checkPlatform returns an error for a configuration of an image that is for another platform. Without an index, nothing else says for
// which one the image of a tag is. Variants are not compared: those of an architecture are versions of it.
func checkPlatform(config []byte, machine v1.Platform) error {
	var image v1.Platform
	if json.Unmarshal(config, &image) != nil || image.Architecture == "" {
		return nil
	}
	image.OS = cmp.Or(image.OS, machine.OS)
	if image.Satisfies(v1.Platform{OS: machine.OS, Architecture: machine.Architecture}) {
		return nil
	}
	return fmt.Errorf("the image is for %s, this machine is %s", image, machine)
}

// checkedLayers returns the layers of an image if they are within the limits and the registry itself has them.
func checkedLayers(image *v1.Manifest, bounds limits) ([]v1.Descriptor, error) {
	if err := bounds.checkLayers(len(image.Layers)); err != nil {
		return nil, err
	}
	var total int64
	for i, layer := range image.Layers {
		switch {
		case !layer.MediaType.IsDistributable() || len(layer.URLs) > 0:
			return nil, fmt.Errorf("layer %d (%s) is not in the registry: push the image with all its layers", i, layer.MediaType)
		case !layer.MediaType.IsLayer():
			return nil, fmt.Errorf("layer %d has media type %q, which is not that of a layer", i, layer.MediaType)
		case layer.Size < 0:
			return nil, fmt.Errorf("layer %d has size %d", i, layer.Size)
		}
		if _, err := v1.Hasher(layer.Digest.Algorithm); err != nil {
			return nil, fmt.Errorf("layer %d: %w", i, err)
		}
		if total += layer.Size; layer.Size > bounds.bytes || total > bounds.bytes {
			return nil, fmt.Errorf("the layers of the image are larger than %s, which is the limit", humanBytes(bounds.bytes))
		}
	}
	return image.Layers, nil
}

// digestError is returned for content that does not match its digest.
type digestError struct{ got, want v1.Hash }

func (e *digestError) Error() string {
	return fmt.Sprintf("digest mismatch: got %s, want %s", e.got, e.want)
}

// verifyDigest compares content with its digest.
func verifyDigest(raw []byte, want v1.Hash) error {
	sum, err := v1.Hasher(want.Algorithm)
	if err != nil {
		return err
	}
	sum.Write(raw)
	return verifySum(sum.Sum(nil), want)
}

// verifySum compares the checksum of content with its digest.
func verifySum(sum []byte, want v1.Hash) error {
	if got := (v1.Hash{Algorithm: want.Algorithm, Hex: hex.EncodeToString(sum)}); got != want {
		return &digestError{got: got, want: want}
	}
	return nil
}

func humanBytes(n int64) string { return humanize.IBytes(uint64(max(n, 0))) }
