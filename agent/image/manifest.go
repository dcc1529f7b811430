package image

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// maxManifest bounds a manifest; registries take none that is larger.
const maxManifest = 4 << 20

// maxDepth bounds how many indexes may lead to a manifest.
const maxDepth = 4

// Limits bound what one image may take of the machine.
type Limits struct {
	// Layers is how many there may be.
	Layers int
	// Bytes is the size of all layers as they are sent.
	Bytes int64
	// UnpackedBytes is the size of all layers when they are unpacked.
	UnpackedBytes int64
}

// DefaultLimits leave room for installer images with all images of a distribution in them.
var DefaultLimits = Limits{Layers: 256, Bytes: 16 << 30, UnpackedBytes: 32 << 30}

// document is a manifest of either kind; exactly one of the two is set.
type document struct {
	image *v1.Manifest
	index *v1.IndexManifest
}

// decodeDocument reads a manifest. said is what the registry calls it; what the manifest says of itself counts more.
func decodeDocument(raw []byte, said types.MediaType) (document, error) {
	var shape struct {
		SchemaVersion int               `json:"schemaVersion"`
		MediaType     types.MediaType   `json:"mediaType"`
		Manifests     []json.RawMessage `json:"manifests"`
		Layers        []json.RawMessage `json:"layers"`
		FSLayers      []json.RawMessage `json:"fsLayers"`
	}
	if err := json.Unmarshal(raw, &shape); err != nil {
		return document{}, fmt.Errorf("decoding the manifest: %w", err)
	}
	kind := shape.MediaType
	if kind == "" {
		kind = said
	}
	switch {
	case shape.SchemaVersion == 1 || shape.FSLayers != nil || kind.IsSchema1():
		return document{}, errors.New("the manifest is of Docker schema 1, which cannot be verified: push the image again with a tool of today")
	case kind.IsIndex() || !kind.IsImage() && shape.Manifests != nil:
		index, err := v1.ParseIndexManifest(bytes.NewReader(raw))
		if err != nil {
			return document{}, fmt.Errorf("decoding the image index: %w", err)
		}
		return document{index: index}, nil
	case kind.IsImage() || shape.Layers != nil:
		image, err := v1.ParseManifest(bytes.NewReader(raw))
		if err != nil {
			return document{}, fmt.Errorf("decoding the manifest: %w", err)
		}
		return document{image: image}, nil
	default:
		return document{}, fmt.Errorf("a manifest of type %q is no image", kind)
	}
}

// pick gives the image of an index for a platform.
func pick(index *v1.IndexManifest, platform v1.Platform) (v1.Descriptor, error) {
	var offered []string
	for _, described := range index.Manifests {
		if described.Platform == nil {
			if len(index.Manifests) == 1 {
				return described, nil
			}
			continue
		}
		if described.Platform.Satisfies(platform) {
			return described, nil
		}
		offered = append(offered, described.Platform.String())
	}
	return v1.Descriptor{}, fmt.Errorf("the image is not for %s, only for %s", platform, strings.Join(offered, ", "))
}

// layersOf gives the layers of an image, the lowest first, if they are within the limits and come from the registry.
func layersOf(manifest *v1.Manifest, limits Limits) ([]v1.Descriptor, error) {
	if len(manifest.Layers) > limits.Layers {
		return nil, fmt.Errorf("the image has %d layers, and %d are the limit", len(manifest.Layers), limits.Layers)
	}
	var total int64
	for i, layer := range manifest.Layers {
		switch {
		case !layer.MediaType.IsDistributable() || len(layer.URLs) > 0:
			return nil, fmt.Errorf("layer %d is to be fetched from elsewhere (%s): push the image with all its layers", i, layer.MediaType)
		case !layer.MediaType.IsLayer():
			return nil, fmt.Errorf("layer %d is of type %q, which is no layer of an image", i, layer.MediaType)
		case layer.Size < 0:
			return nil, fmt.Errorf("layer %d has the size %d", i, layer.Size)
		}
		if _, err := v1.Hasher(layer.Digest.Algorithm); err != nil {
			return nil, fmt.Errorf("layer %d: digests of kind %q are not known", i, layer.Digest.Algorithm)
		}
		if total += layer.Size; layer.Size > limits.Bytes || total > limits.Bytes {
			return nil, fmt.Errorf("the layers of the image have more than %s, which is the limit", size(limits.Bytes))
		}
	}
	return manifest.Layers, nil
}

// digestOf is the digest of content, of the kind of another one.
func digestOf(raw []byte, algorithm string) (v1.Hash, error) {
	sum, err := v1.Hasher(algorithm)
	if err != nil {
		return v1.Hash{}, fmt.Errorf("digests of kind %q are not known", algorithm)
	}
	sum.Write(raw)
	return v1.Hash{Algorithm: algorithm, Hex: hex.EncodeToString(sum.Sum(nil))}, nil
}

// size writes a number of bytes for people.
func size(n int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	value, unit := float64(n), 0
	for value >= 1024 && unit < len(units)-1 {
		value, unit = value/1024, unit+1
	}
	return strings.TrimSuffix(fmt.Sprintf("%.1f", value), ".0") + " " + units[unit]
}
