package images

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	ocilayout "github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"

	"github.com/drover-dev/drover/installer/oci"
)

// containerdNameAnnotation holds the name that containerd gives to an image of an archive. It reads oci.RefNameAnnotation only without it.
const containerdNameAnnotation = "io.containerd.image.name"

// WriteBundle writes one archive of all images for all architectures: a tarball of an OCI layout, which "ctr images import" and "skopeo
// copy oci-archive:" read. In its index each image has its full name, such as docker.io/drover/hub:v1.2.3. Layers that images share are in
// it once. created is the time of all its files, by default the beginning of 1970; the same images give the same bytes. The documents are
// not in it. The file appears under its name only when it is complete. tempDir must have room for all layers.
func WriteBundle(ctx context.Context, file string, images []Image, created time.Time, tempDir string) (err error) {
	dir, err := os.MkdirTemp(tempDir, "bundle-")
	if err != nil {
		return fmt.Errorf("creating a temporary directory: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if created.IsZero() {
		created = time.Unix(0, 0)
	}
	index := v1.ImageIndex(empty.Index)
	for _, img := range images {
		ref, err := img.Reference(name.DefaultRegistry)
		if err != nil {
			return err
		}
		// The name of Docker Hub's API, which the library uses, is not the one that people know.
		full := "docker.io/" + ref.RepositoryStr() + ":" + ref.TagStr()
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: img.Index, Descriptor: v1.Descriptor{
			Annotations: map[string]string{oci.RefNameAnnotation: full, containerdNameAnnotation: full},
		}})
	}
	if _, err := ocilayout.Write(dir, index); err != nil {
		return fmt.Errorf("writing an OCI layout: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	out, err := os.CreateTemp(filepath.Dir(file), "."+filepath.Base(file)+"-*")
	if err != nil {
		return fmt.Errorf("writing %s: %w", file, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("writing %s: %w", file, err), os.Remove(out.Name()))
		}
	}()
	if err = errors.Join(archive(ctx, out, dir, created), out.Chmod(0o644), out.Sync(), out.Close()); err != nil {
		return err
	}
	return os.Rename(out.Name(), file)
}

// archive writes the files of an OCI layout, those that describe it first.
func archive(ctx context.Context, out io.Writer, dir string, created time.Time) error {
	blobs, err := fs.Glob(os.DirFS(dir), "blobs/*/*")
	if err != nil {
		return err
	}
	to := tar.NewWriter(out)
	for _, path := range slices.Concat([]string{"oci-layout", "index.json"}, blobs) {
		if err := errors.Join(ctx.Err(), add(to, dir, path, created)); err != nil {
			return err
		}
	}
	return to.Close()
}

// add adds a file, which belongs to root whoever has written it.
func add(to *tar.Writer, dir, path string, created time.Time) error {
	in, err := os.Open(filepath.Join(dir, path))
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	header := &tar.Header{Typeflag: tar.TypeReg, Name: path, Size: info.Size(), Mode: 0o644, ModTime: created, Format: tar.FormatPAX}
	if err := to.WriteHeader(header); err != nil {
		return err
	}
	_, err = io.Copy(to, in)
	return err
}
