package agent

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/drover-dev/drover/e2e/distro/internal/flavour"
	"github.com/drover-dev/drover/e2e/distro/internal/layout"
)

// importImages imports the image archives that lie in agent/images. One that cannot be read is logged and skipped.
func (a *agent) importImages(ctx context.Context) error {
	files, err := filepath.Glob(a.data.Agent("images", "*"))
	if err != nil {
		return err
	}
	for _, file := range files {
		if err := a.importFile(ctx, file); err != nil {
			a.Log.Warn("Cannot import images", "file", file, "error", err)
			continue
		}
		a.Log.Info("Imported images", "file", file)
	}
	own := []string{a.c.PauseImage}
	if flavour.Current.StaticPods {
		own = append(own, flavour.Image(KubernetesImage), flavour.Image(EtcdImage))
	}
	for _, image := range own {
		if a.registry() == "" || !a.ownImage(image) {
			continue
		}
		if err := ctr(ctx, nil, "images", "tag", "--force", "docker.io/"+image, a.registry()+"/"+image); err != nil {
			a.Log.Warn("Cannot name an image after the default registry", "image", image, "error", err)
		}
	}
	return nil
}

// The images of the static pods of RKE2.
const (
	KubernetesImage = "hardened-kubernetes"
	EtcdImage       = "hardened-etcd"
)

func (a *agent) importFile(ctx context.Context, file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	var in io.Reader = f
	switch {
	case strings.HasSuffix(file, ".txt"):
		return a.pullList(ctx, f)
	case strings.HasSuffix(file, ".tar"):
	case strings.HasSuffix(file, ".tar.gz"), strings.HasSuffix(file, ".tgz"):
		if in, err = gzip.NewReader(f); err != nil {
			return err
		}
	case strings.HasSuffix(file, ".tar.zst"):
		d, err := zstd.NewReader(f)
		if err != nil {
			return err
		}
		defer d.Close()
		in = d
	default:
		return fmt.Errorf("it is not a .tar, .tar.gz or .tar.zst")
	}
	return ctr(ctx, in, "images", "import", "-")
}

// pullList pulls the images that a text file names, one a line.
func (a *agent) pullList(ctx context.Context, r io.Reader) error {
	raw, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	for image := range strings.FieldsSeq(string(raw)) {
		if err := ctr(ctx, nil, "images", "pull", "--hosts-dir", a.data.Agent("etc/containerd/certs.d"), image); err != nil {
			return err
		}
	}
	return nil
}

func ctr(ctx context.Context, in io.Reader, args ...string) error {
	cmd := exec.CommandContext(ctx, "ctr", append([]string{"--address", layout.ContainerdSocket, "--namespace", "k8s.io"}, args...)...)
	var out bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, &out, &out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("ctr %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(out.String()))
	}
	return nil
}
