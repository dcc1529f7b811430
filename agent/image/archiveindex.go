package image

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

const (
	// maxDocumentBytes bounds one JSON file of an archive, maxDocumentsBytes all of them together.
	maxDocumentBytes  = maxManifestBytes
	maxDocumentsBytes = 16 << 20
	// maxArchiveFiles bounds how many files an archive may hold.
	maxArchiveFiles = 1 << 16
)

// errNotInArchive is returned for an archive that can be read and holds other images.
var errNotInArchive = errors.New("image not found in archive")

// archiveIndex is what one pass over an archive finds: everything but the content of layers. Names of files are cleaned (path.Clean).
//
// go-containerregistry's packages tarball and layout are not used for this. tarball opens the archive again for each file that it reads,
// which decompresses it 3 times and twice per layer, reads documents of any size, and does not compare layers with their digests; layout
// reads directories only, and both know neither zstd nor lz4 nor bzip2 around an archive.
type archiveIndex struct {
	// sizes are those of all regular files.
	sizes map[string]int64
	// links are names that stand for other files, by symbolic or hard links.
	links map[string]string
	// documents are the files that hold JSON.
	documents map[string][]byte
}

// archiveLayer is a layer in an archive.
type archiveLayer struct {
	file string
	// digest is that of the file, or with uncompressed that of its content without compression.
	digest       v1.Hash
	uncompressed bool
	// size of the file in bytes.
	size int64
}

// openArchive returns the tar stream of an archive.
func (s *Store) openArchive(ctx context.Context, archive string) (reader *tar.Reader, closeArchive func(), err error) {
	file, err := s.Host.Open(archive)
	if err != nil {
		return nil, nil, err
	}
	content, compressed, err := decompress(&contextReader{ctx: ctx, Reader: file})
	if seeker, ok := file.(io.ReadSeeker); ok && err == nil && !compressed {
		// The tar reader seeks over what is not read.
		if _, err = seeker.Seek(0, io.SeekStart); err == nil {
			return tar.NewReader(seeker), func() { file.Close() }, nil
		}
	}
	if err != nil {
		file.Close()
		return nil, nil, err
	}
	return tar.NewReader(content), func() { content.Close(); file.Close() }, nil
}

func (s *Store) indexArchive(ctx context.Context, archive string) (*archiveIndex, error) {
	reader, closeArchive, err := s.openArchive(ctx, archive)
	if err != nil {
		return nil, err
	}
	defer closeArchive()
	return indexTar(ctx, reader)
}

func indexTar(ctx context.Context, reader *tar.Reader) (*archiveIndex, error) {
	index := &archiveIndex{sizes: map[string]int64{}, links: map[string]string{}, documents: map[string][]byte{}}
	remaining := int64(maxDocumentsBytes)
	for count := 0; ; count++ {
		header, err := reader.Next()
		switch {
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case errors.Is(err, io.EOF):
			return index, nil
		case err != nil:
			return nil, fmt.Errorf("reading the archive: %w", err)
		case count > maxArchiveFiles:
			return nil, fmt.Errorf("the archive holds more than %d files", maxArchiveFiles)
		}
		file := path.Clean(header.Name)
		switch header.Typeflag {
		case tar.TypeSymlink:
			index.links[file] = path.Join(path.Dir(file), header.Linkname)
		case tar.TypeLink:
			index.links[file] = path.Clean(header.Linkname)
		case tar.TypeReg:
			index.sizes[file] = header.Size
			if header.Size > maxDocumentBytes || header.Size > remaining {
				continue
			}
			// A document begins with a brace or bracket; layers do not.
			first := make([]byte, 1)
			if n, _ := reader.Read(first); n == 0 || first[0] != '{' && first[0] != '[' {
				continue
			}
			raw, err := io.ReadAll(io.MultiReader(bytes.NewReader(first), reader))
			if err != nil {
				return nil, fmt.Errorf("reading the archive: %w", err)
			}
			index.documents[file] = raw
			remaining -= header.Size
		}
	}
}

// find returns the layers of an image, the lowest first, or errNotInArchive.
func (a *archiveIndex) find(ref name.Reference, platform v1.Platform, bounds limits) ([]archiveLayer, error) {
	layers, err := a.findOCI(ref, platform, bounds)
	if errors.Is(err, errNotInArchive) {
		layers, err = a.findDocker(ref, platform, bounds)
	}
	if err != nil {
		return nil, err
	}
	for i := range layers {
		layer := &layers[i]
		if target, found := a.links[layer.file]; found {
			layer.file = target
		}
		var found bool
		if layer.size, found = a.sizes[layer.file]; !found {
			return nil, fmt.Errorf("the archive lacks layer %s", layer.file)
		}
	}
	return layers, nil
}

// nameAnnotations hold the name of an image in the index of an OCI layout: containerd's, and the one of the OCI image specification.
var nameAnnotations = []string{"io.containerd.image.name", "org.opencontainers.image.ref.name"}

// findOCI searches an OCI image layout (index.json and blobs/).
func (a *archiveIndex) findOCI(ref name.Reference, platform v1.Platform, bounds limits) ([]archiveLayer, error) {
	raw, found := a.documents["index.json"]
	if !found {
		return nil, errNotInArchive
	}
	root, err := v1.ParseIndexManifest(bytes.NewReader(raw))
	if err != nil {
		return nil, fmt.Errorf("decoding index.json: %w", err)
	}
	descriptor, found := a.findDescriptor(root, ref)
	if !found {
		return nil, errNotInArchive
	}
	layers, err := resolveLayers(descriptor.Digest.String(), platform, bounds, func(digest string) (manifest, error) {
		hash, err := v1.NewHash(digest)
		if err != nil {
			return manifest{}, err
		}
		raw, err := a.blob(hash)
		if err != nil {
			return manifest{}, err
		}
		m, err := decodeManifest(raw, "")
		if _, byTag := ref.(name.Tag); err == nil && byTag && m.image != nil && hash == descriptor.Digest {
			err = checkPlatform(a.documents[blobFile(m.image.Config.Digest)], platform)
		}
		return m, err
	})
	if err != nil {
		return nil, err
	}
	var all []archiveLayer
	for _, layer := range layers {
		all = append(all, archiveLayer{file: blobFile(layer.Digest), digest: layer.Digest})
	}
	return all, nil
}

// findDescriptor finds an image in the index of an OCI layout: by name, or by the digest of the image or of its index.
func (a *archiveIndex) findDescriptor(root *v1.IndexManifest, ref name.Reference) (v1.Descriptor, bool) {
	_, byDigest := ref.(name.Digest)
	matches := func(d v1.Descriptor) bool {
		if byDigest {
			return d.Digest.String() == ref.Identifier()
		}
		return slices.ContainsFunc(nameAnnotations, func(key string) bool { return isTag(d.Annotations[key], ref) })
	}
	for _, descriptor := range root.Manifests {
		if matches(descriptor) {
			return descriptor, true
		}
		if !byDigest || !descriptor.MediaType.IsIndex() {
			continue
		}
		if raw, err := a.blob(descriptor.Digest); err == nil {
			if inner, err := v1.ParseIndexManifest(bytes.NewReader(raw)); err == nil {
				if i := slices.IndexFunc(inner.Manifests, matches); i >= 0 {
					return inner.Manifests[i], true
				}
			}
		}
	}
	return v1.Descriptor{}, false
}

// isTag reports whether text is a name of the image ref, however it is written: busybox and docker.io/library/busybox:latest are one.
func isTag(text string, ref name.Reference) bool {
	tag, err := name.NewTag(text)
	return err == nil && tag.Name() == ref.Name()
}

func blobFile(digest v1.Hash) string { return path.Join("blobs", digest.Algorithm, digest.Hex) }

// blob returns a JSON blob of an OCI layout after comparing it with its digest.
func (a *archiveIndex) blob(digest v1.Hash) ([]byte, error) {
	raw, found := a.documents[blobFile(digest)]
	if !found {
		return nil, fmt.Errorf("the archive lacks manifest %s", digest)
	}
	return raw, verifyDigest(raw, digest)
}

// findDocker searches what "docker save" writes (manifest.json). That format has no digests of images and only those of uncompressed
// layers.
func (a *archiveIndex) findDocker(ref name.Reference, platform v1.Platform, bounds limits) ([]archiveLayer, error) {
	raw, found := a.documents["manifest.json"]
	if !found && a.documents["index.json"] == nil {
		return nil, errors.New("not an image archive: neither manifest.json nor index.json found")
	}
	if _, byTag := ref.(name.Tag); !found || !byTag {
		return nil, errNotInArchive
	}
	var images tarball.Manifest
	if err := json.Unmarshal(raw, &images); err != nil {
		return nil, fmt.Errorf("decoding manifest.json: %w", err)
	}
	i := slices.IndexFunc(images, func(image tarball.Descriptor) bool {
		return slices.ContainsFunc(image.RepoTags, func(text string) bool { return isTag(text, ref) })
	})
	if i < 0 {
		return nil, errNotInArchive
	}
	image := images[i]
	if err := bounds.checkLayers(len(image.Layers)); err != nil {
		return nil, err
	}
	raw = a.documents[path.Clean(image.Config)]
	var config v1.ConfigFile
	if err := json.Unmarshal(raw, &config); err != nil {
		return nil, fmt.Errorf("decoding image configuration %s: %w", image.Config, err)
	}
	if err := checkPlatform(raw, platform); err != nil {
		return nil, err
	}
	if digests := len(config.RootFS.DiffIDs); digests != len(image.Layers) {
		return nil, fmt.Errorf("image configuration %s has digests of %d layers, want %d", image.Config, digests, len(image.Layers))
	}
	var layers []archiveLayer
	for i, file := range image.Layers {
		layers = append(layers, archiveLayer{file: path.Clean(file), digest: config.RootFS.DiffIDs[i], uncompressed: true})
	}
	return layers, nil
}
