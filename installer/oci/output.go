package oci

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	ocilayout "github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/match"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/drover-dev/drover/installer/progress"
)

// RefNameAnnotation holds the name of an image in an OCI layout.
const RefNameAnnotation = "org.opencontainers.image.ref.name"

// Push pushes the index and its images to a registry. Credentials are those of "docker login".
func Push(ctx context.Context, ref name.Reference, index v1.ImageIndex, report *progress.Reporter, opts ...remote.Option) error {
	updates := make(chan v1.Update, 16)
	go func() { // ends with the push, which closes the channel
		task := report.Start("pushing", 0)
		for update := range updates {
			task.Set(update.Complete, update.Total)
		}
	}()
	err := remote.WriteIndex(ref, index, append(pushOptions(ctx, opts), remote.WithProgress(updates))...)
	if refused := new(transport.Error); errors.As(err, &refused) &&
		(refused.StatusCode == http.StatusUnauthorized || refused.StatusCode == http.StatusForbidden) {
		return fmt.Errorf("pushing %s: access denied; log in to %s first, for example with docker login: %w", ref, ref.Context().RegistryStr(),
			err)
	}
	if err != nil {
		return fmt.Errorf("pushing %s: %w", ref, err)
	}
	return nil
}

func pushOptions(ctx context.Context, opts []remote.Option) []remote.Option {
	return append([]remote.Option{
		remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain), remote.WithJobs(2),
	}, opts...)
}

// WriteLayout adds the index to an OCI layout under tag, and removes what had that tag. The directory may be missing, empty or an OCI
// layout.
func WriteLayout(dir, tag string, index v1.ImageIndex) error {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("writing an OCI layout: %w", err)
	}
	path, err := ocilayout.FromPath(dir)
	switch {
	case err == nil:
	case len(entries) > 0:
		return fmt.Errorf("%s is not empty and is not an OCI layout", dir)
	default:
		if path, err = ocilayout.Write(dir, empty.Index); err != nil {
			return fmt.Errorf("writing an OCI layout to %s: %w", dir, err)
		}
	}
	err = path.ReplaceIndex(index, match.Name(tag), ocilayout.WithAnnotations(map[string]string{RefNameAnnotation: tag}))
	if err != nil {
		return fmt.Errorf("writing an OCI layout to %s: %w", dir, err)
	}
	return nil
}

// WriteTarball writes one image in the format of "docker save", which agents read from imagesDirectory. The file appears under its name
// only when it is complete.
func WriteTarball(ctx context.Context, file string, ref name.Reference, img v1.Image) (err error) {
	out, err := os.CreateTemp(filepath.Dir(file), "."+filepath.Base(file)+"-*")
	if err != nil {
		return fmt.Errorf("writing %s: %w", file, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("writing %s: %w", file, err), os.Remove(out.Name()))
		}
	}()
	if err = errors.Join(tarball.Write(ref, img, &cancelWriter{ctx, out}), out.Chmod(0o644), out.Sync(), out.Close()); err != nil {
		return err
	}
	return os.Rename(out.Name(), file)
}

// cancelWriter fails once its context is done.
type cancelWriter struct {
	ctx context.Context
	io.Writer
}

func (w *cancelWriter) Write(p []byte) (int, error) {
	if err := w.ctx.Err(); err != nil {
		return 0, err
	}
	return w.Writer.Write(p)
}
