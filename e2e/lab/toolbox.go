package lab

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// ToolboxImage is what scenarios run in clusters, see e2e/cmd/toolbox. Clusters of a lab pull it from the lab's registry.
const ToolboxImage = "docker.io/drover/toolbox:1"

// toolboxLinks are the names by which the toolbox is called in a container.
var toolboxLinks = []string{"serve", "terminal", "tar", "test", "cat", "sha256sum"}

// PushToolbox puts the image into the lab's registry.
func (l *Lab) PushToolbox(ctx context.Context) error {
	program, err := os.ReadFile(l.bin("toolbox"))
	if err != nil {
		return err
	}
	image, err := toolboxImage(program)
	if err != nil {
		return fmt.Errorf("making the image of the toolbox: %w", err)
	}
	ref, err := name.ParseReference(fmt.Sprintf("%s:%d/drover/toolbox:1", l.HubIP(), registryPort), name.Insecure)
	if err != nil {
		return err
	}
	if err := remote.Write(ref, image, remote.WithContext(ctx), remote.WithTransport(&http.Transport{DialContext: l.Dial})); err != nil {
		return fmt.Errorf("pushing the image of the toolbox: %w", err)
	}
	return nil
}

// toolboxImage holds the program and its links, and runs as a user without rights.
func toolboxImage(program []byte) (v1.Image, error) {
	var b bytes.Buffer
	archive := tar.NewWriter(&b)
	if err := archive.WriteHeader(&tar.Header{Name: "bin/toolbox", Mode: 0o755, Size: int64(len(program))}); err != nil {
		return nil, err
	}
	if _, err := archive.Write(program); err != nil {
		return nil, err
	}
	for _, link := range toolboxLinks {
		if err := archive.WriteHeader(&tar.Header{Name: "bin/" + link, Typeflag: tar.TypeSymlink, Linkname: "toolbox"}); err != nil {
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
	config.Config.Entrypoint, config.Config.User, config.Config.Env = []string{"/bin/serve"}, "65534:65534", []string{"PATH=/bin"}
	return mutate.ConfigFile(image, config)
}
