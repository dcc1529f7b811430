package lab

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path"
	"runtime"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// Program is an image of one static program, which runs as a user without rights. Clusters of a lab pull it from the lab's registry.
type Program struct {
	// Image is the name, without a registry, and the tag.
	Image string
	// File is the program on this machine, Path its path in the image, and Links are other names beside it.
	File, Path string
	Links      []string
	// Entrypoint is the path that is called. Default: Path.
	Entrypoint string
}

// PushProgram puts the image into the lab's registry.
func (l *Lab) PushProgram(ctx context.Context, p Program) error {
	content, err := os.ReadFile(p.File)
	if err != nil {
		return err
	}
	image, err := programImage(p, content)
	if err != nil {
		return fmt.Errorf("making the image %s: %w", p.Image, err)
	}
	ref, err := name.ParseReference(fmt.Sprintf("%s:%d/%s", l.HubIP(), registryPort, p.Image), name.Insecure)
	if err != nil {
		return err
	}
	if err := remote.Write(ref, image, remote.WithContext(ctx), remote.WithTransport(&http.Transport{DialContext: l.Dial})); err != nil {
		return fmt.Errorf("pushing the image %s: %w", p.Image, err)
	}
	return nil
}

// programImage holds the program and its links.
func programImage(p Program, content []byte) (v1.Image, error) {
	var b bytes.Buffer
	archive := tar.NewWriter(&b)
	if err := archive.WriteHeader(&tar.Header{Name: p.Path[1:], Mode: 0o755, Size: int64(len(content))}); err != nil {
		return nil, err
	}
	if _, err := archive.Write(content); err != nil {
		return nil, err
	}
	for _, link := range p.Links {
		header := &tar.Header{Name: path.Join(path.Dir(p.Path), link)[1:], Typeflag: tar.TypeSymlink, Linkname: path.Base(p.Path)}
		if err := archive.WriteHeader(header); err != nil {
			return nil, err
		}
	}
	if err := archive.Close(); err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.Bytes())), nil })
	if err != nil {
		return nil, err
	}
	image, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", runtime.GOARCH
	config.Config.User, config.Config.Env = "65534:65534", []string{"PATH=" + path.Dir(p.Path)}
	config.Config.Entrypoint = []string{cmp.Or(p.Entrypoint, p.Path)}
	return mutate.ConfigFile(image, config)
}
