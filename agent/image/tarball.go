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
)

const (
	// maxDocument bounds one JSON file of an archive, maxDocuments all of them, and maxMembers how many files there may be.
	maxDocument  = maxManifest
	maxDocuments = 16 << 20
	maxMembers   = 1 << 16
)

// errNotHeld tells that an archive holds other images.
var errNotHeld = errors.New("the image is not in it")

// contents is what one look through an archive finds.
type contents struct {
	// sizes of all files, by name.
	sizes map[string]int64
	// links are names that stand for other files.
	links map[string]string
	// documents are the files that hold JSON.
	documents map[string][]byte
}

// stored is a layer in an archive.
type stored struct {
	member string
	// digest is of the file as it is stored, or, if plain is set, of its uncompressed content.
	digest v1.Hash
	plain  bool
	// size is that of the file.
	size int64
}

// open gives the tar stream of an archive. A plain one can be skipped through without reading it.
func (s *Store) open(ctx context.Context, archive string) (*tar.Reader, func(), error) {
	file, err := s.Host.OpenFile(archive)
	if err != nil {
		return nil, nil, err
	}
	if seeker, ok := file.(io.ReadSeeker); ok {
		magic := make([]byte, 4)
		n, err := io.ReadFull(seeker, magic)
		if _, back := seeker.Seek(0, io.SeekStart); back != nil || err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
			file.Close()
			return nil, nil, errors.Join(back, err)
		}
		magic = magic[:n]
		if !slices.ContainsFunc([][]byte{gzipMagic, zstdMagic, lz4Magic, bzip2Magic}, func(m []byte) bool { return bytes.HasPrefix(magic, m) }) {
			return tar.NewReader(seeker), func() { file.Close() }, nil
		}
	}
	plain, err := decompress(&contextReader{ctx: ctx, inner: file})
	if err != nil {
		file.Close()
		return nil, nil, err
	}
	return tar.NewReader(plain), func() { plain.Close(); file.Close() }, nil
}

// scan looks through an archive once.
func (s *Store) scan(ctx context.Context, archive string) (*contents, error) {
	reader, closeAll, err := s.open(ctx, archive)
	if err != nil {
		return nil, err
	}
	defer closeAll()
	return scanTar(ctx, reader)
}

func scanTar(ctx context.Context, reader *tar.Reader) (*contents, error) {
	c := &contents{sizes: map[string]int64{}, links: map[string]string{}, documents: map[string][]byte{}}
	room := int64(maxDocuments)
	for count := 0; ; count++ {
		header, err := reader.Next()
		switch {
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case errors.Is(err, io.EOF):
			return c, nil
		case err != nil:
			return nil, fmt.Errorf("reading the archive: %w", err)
		case count > maxMembers:
			return nil, fmt.Errorf("it holds more than %d files", maxMembers)
		}
		member := path.Clean(header.Name)
		switch header.Typeflag {
		case tar.TypeSymlink:
			c.links[member] = path.Join(path.Dir(member), header.Linkname)
		case tar.TypeLink:
			c.links[member] = path.Clean(header.Linkname)
		case tar.TypeReg:
			c.sizes[member] = header.Size
			if header.Size > maxDocument || header.Size > room {
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
			c.documents[member] = raw
			room -= header.Size
		}
	}
}

// find gives the layers of an image, the lowest first.
func (c *contents) find(ref name.Reference, platform v1.Platform, limits Limits) ([]stored, error) {
	layers, err := c.findOCI(ref, platform, limits)
	if errors.Is(err, errNotHeld) {
		layers, err = c.findDocker(ref, limits)
	}
	if err != nil {
		return nil, err
	}
	for i, layer := range layers {
		if target, found := c.links[layer.member]; found {
			layers[i].member = target
		}
		var found bool
		if layers[i].size, found = c.sizes[layers[i].member]; !found {
			return nil, fmt.Errorf("the file %s of a layer is missing in it", layer.member)
		}
	}
	return layers, nil
}

// names by which an OCI layout says which image is which.
var nameAnnotations = []string{"io.containerd.image.name", "org.opencontainers.image.ref.name"}

// findOCI looks for an image in an OCI layout.
func (c *contents) findOCI(ref name.Reference, platform v1.Platform, limits Limits) ([]stored, error) {
	raw, found := c.documents["index.json"]
	if !found {
		return nil, errNotHeld
	}
	top, err := v1.ParseIndexManifest(bytes.NewReader(raw))
	if err != nil {
		return nil, fmt.Errorf("decoding index.json: %w", err)
	}
	described, err := c.describe(top, ref)
	for depth := 0; err == nil && depth < maxDepth; depth++ {
		var raw []byte
		if raw, err = c.blob(described.Digest); err != nil {
			return nil, err
		}
		document, err := decodeDocument(raw, described.MediaType)
		if err != nil {
			return nil, err
		}
		if document.index != nil {
			if described, err = pick(document.index, platform); err != nil {
				return nil, err
			}
			continue
		}
		layers, err := layersOf(document.image, limits)
		if err != nil {
			return nil, err
		}
		all := make([]stored, 0, len(layers))
		for _, layer := range layers {
			all = append(all, stored{member: blobMember(layer.Digest), digest: layer.Digest})
		}
		return all, nil
	}
	if err == nil {
		err = fmt.Errorf("more than %d image indexes lead to each other", maxDepth)
	}
	return nil, err
}

// describe finds an image in the index of an OCI layout: by digest, or by the name that tools write there.
func (c *contents) describe(top *v1.IndexManifest, ref name.Reference) (v1.Descriptor, error) {
	digest, byDigest := ref.(name.Digest)
	for _, described := range top.Manifests {
		if byDigest {
			if described.Digest.String() == digest.DigestStr() {
				return described, nil
			}
			// The digest may be that of one platform's image.
			if raw, err := c.blob(described.Digest); err == nil && described.MediaType.IsIndex() {
				if inner, err := v1.ParseIndexManifest(bytes.NewReader(raw)); err == nil {
					for _, child := range inner.Manifests {
						if child.Digest.String() == digest.DigestStr() {
							return child, nil
						}
					}
				}
			}
			continue
		}
		for _, key := range nameAnnotations {
			if held, err := name.NewTag(described.Annotations[key]); err == nil && held.Name() == ref.Name() {
				return described, nil
			}
		}
	}
	return v1.Descriptor{}, errNotHeld
}

func blobMember(digest v1.Hash) string { return path.Join("blobs", digest.Algorithm, digest.Hex) }

// blob gives a JSON blob of an OCI layout, if it is what its digest says.
func (c *contents) blob(digest v1.Hash) ([]byte, error) {
	raw, found := c.documents[blobMember(digest)]
	if !found {
		return nil, fmt.Errorf("the manifest %s is missing in it", digest)
	}
	got, err := digestOf(raw, digest.Algorithm)
	if err == nil && got != digest {
		err = fmt.Errorf("its manifest has the digest %s and not %s", got, digest)
	}
	return raw, err
}

// findDocker looks for an image in what "docker save" writes. That knows no digests of images.
func (c *contents) findDocker(ref name.Reference, limits Limits) ([]stored, error) {
	raw, found := c.documents["manifest.json"]
	tag, isTag := ref.(name.Tag)
	if !found || !isTag {
		if _, layout := c.documents["index.json"]; !found && !layout {
			return nil, errors.New("it holds neither manifest.json nor index.json, so it is no archive of images")
		}
		return nil, errNotHeld
	}
	var manifest []struct {
		Config   string
		RepoTags []string
		Layers   []string
	}
	if err := json.Unmarshal(raw, &manifest); err != nil {
		return nil, fmt.Errorf("decoding manifest.json: %w", err)
	}
	for _, described := range manifest {
		holds := func(text string) bool {
			held, err := name.NewTag(text)
			return err == nil && held.Name() == tag.Name()
		}
		if !slices.ContainsFunc(described.RepoTags, holds) {
			continue
		}
		if len(described.Layers) > limits.Layers {
			return nil, fmt.Errorf("the image has %d layers, and %d are the limit", len(described.Layers), limits.Layers)
		}
		var config v1.ConfigFile
		if err := json.Unmarshal(c.documents[path.Clean(described.Config)], &config); err != nil {
			return nil, fmt.Errorf("decoding the image's configuration %s: %w", described.Config, err)
		}
		if len(config.RootFS.DiffIDs) != len(described.Layers) {
			return nil, fmt.Errorf("the image has %d layers, but the digests of %d", len(described.Layers), len(config.RootFS.DiffIDs))
		}
		all := make([]stored, 0, len(described.Layers))
		for i, layer := range described.Layers {
			if _, err := v1.Hasher(config.RootFS.DiffIDs[i].Algorithm); err != nil {
				return nil, err
			}
			all = append(all, stored{member: path.Clean(layer), digest: config.RootFS.DiffIDs[i], plain: true})
		}
		return all, nil
	}
	return nil, errNotHeld
}
