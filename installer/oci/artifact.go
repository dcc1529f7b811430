package oci

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	ocilayout "github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// emptyConfig is the configuration of artifacts, which have none, by the OCI image specification (manifest.md, guidelines for artifacts).
const (
	emptyConfig     = "{}"
	emptyConfigType = types.MediaType("application/vnd.oci.empty.v1+json")
)

// artifact is a manifest that is attached to an image.
type artifact struct {
	manifest []byte
	content  v1.Layer
}

// Artifact returns a document about the subject, an image or an index, as an OCI 1.1 artifact that refers to it.
func (b Builder) Artifact(subject partial.Describable, artifactType string, content []byte) (v1.Image, error) {
	about, err := partial.Descriptor(subject)
	if err != nil {
		return nil, fmt.Errorf("describing the subject: %w", err)
	}
	config, size, err := v1.SHA256(bytes.NewReader([]byte(emptyConfig)))
	if err != nil {
		return nil, err
	}
	layer := static.NewLayer(content, types.MediaType(artifactType))
	described, err := partial.Descriptor(layer)
	if err != nil {
		return nil, err
	}
	raw, err := json.Marshal(v1.Manifest{
		SchemaVersion: 2,
		MediaType:     types.OCIManifestSchema1,
		ArtifactType:  artifactType,
		Config:        v1.Descriptor{MediaType: emptyConfigType, Digest: config, Size: size},
		Layers:        []v1.Descriptor{*described},
		Subject:       &v1.Descriptor{MediaType: about.MediaType, Digest: about.Digest, Size: about.Size},
		Annotations:   map[string]string{"org.opencontainers.image.created": b.created().Format(time.RFC3339)},
	})
	if err != nil {
		return nil, err
	}
	return partial.CompressedToImage(&artifact{manifest: raw, content: layer})
}

// MediaType implements partial.CompressedImageCore, as the methods below.
func (a *artifact) MediaType() (types.MediaType, error) { return types.OCIManifestSchema1, nil }
func (a *artifact) RawManifest() ([]byte, error)        { return a.manifest, nil }
func (a *artifact) RawConfigFile() ([]byte, error)      { return []byte(emptyConfig), nil }

// LayerByDigest returns the document, or the configuration.
func (a *artifact) LayerByDigest(digest v1.Hash) (partial.CompressedLayer, error) {
	if own, err := a.content.Digest(); err != nil || own == digest {
		return a.content, err
	}
	config := static.NewLayer([]byte(emptyConfig), emptyConfigType)
	if own, err := config.Digest(); err != nil || own == digest {
		return config, err
	}
	return nil, fmt.Errorf("artifact has no blob %s", digest)
}

// PushArtifact pushes an artifact without a tag into the repository of ref. A registry that does not know referrers gets the tag by which
// clients find them (OCI distribution specification, referrers tag schema).
func PushArtifact(ctx context.Context, ref name.Reference, artifact v1.Image, opts ...remote.Option) error {
	digest, err := artifact.Digest()
	if err != nil {
		return err
	}
	if err := remote.Write(ref.Context().Digest(digest.String()), artifact, pushOptions(ctx, opts)...); err != nil {
		return fmt.Errorf("attaching to %s: %w", ref, err)
	}
	return nil
}

// WriteArtifacts adds artifacts to an OCI layout, and removes those whose subject it no longer has.
func WriteArtifacts(dir string, artifacts []v1.Image) error {
	path, err := ocilayout.FromPath(dir)
	if err != nil {
		return fmt.Errorf("writing artifacts to %s: %w", dir, err)
	}
	for _, artifact := range artifacts {
		digest, err := artifact.Digest()
		if err != nil {
			return err
		}
		same := func(descriptor v1.Descriptor) bool { return descriptor.Digest == digest }
		if err := path.ReplaceImage(artifact, same); err != nil {
			return fmt.Errorf("writing artifacts to %s: %w", dir, err)
		}
	}
	if err := removeOrphans(path); err != nil {
		return fmt.Errorf("removing old artifacts from %s: %w", dir, err)
	}
	return nil
}

// removeOrphans removes manifests whose subject is neither in the layout's index nor in an index that it names.
func removeOrphans(path ocilayout.Path) error {
	top, err := path.ImageIndex()
	if err != nil {
		return err
	}
	manifest, err := top.IndexManifest()
	if err != nil {
		return err
	}
	present, subjects := map[v1.Hash]bool{}, map[v1.Hash]v1.Hash{}
	for _, descriptor := range manifest.Manifests {
		present[descriptor.Digest] = true
		switch {
		case descriptor.MediaType.IsIndex():
			index, err := top.ImageIndex(descriptor.Digest)
			if err != nil {
				return err
			}
			inner, err := index.IndexManifest()
			if err != nil {
				return err
			}
			for _, child := range inner.Manifests {
				present[child.Digest] = true
			}
		case descriptor.MediaType.IsImage():
			image, err := top.Image(descriptor.Digest)
			if err != nil {
				return err
			}
			inner, err := image.Manifest()
			if err != nil {
				return err
			}
			if inner.Subject != nil {
				subjects[descriptor.Digest] = inner.Subject.Digest
			}
		}
	}
	return path.RemoveDescriptors(func(descriptor v1.Descriptor) bool {
		subject, refers := subjects[descriptor.Digest]
		return refers && !present[subject]
	})
}
