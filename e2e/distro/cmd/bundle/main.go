// Command bundle puts a release together from the programs that build.sh has compiled:
//
//	bundle payload <out> <program>...         the programs in the form in which the program k3s carries them at its end
//	bundle images <out> <name>=<program>[=<user>]...   an archive of container images, each holding one program
package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/drover-dev/drover/e2e/distro/internal/payload"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bundle:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) > 2 && args[0] == "payload":
		return pack(args[1], args[2:])
	case len(args) > 2 && args[0] == "images":
		return images(args[1], args[2:])
	}
	return errors.New("usage: bundle payload <out> <program>... | bundle images <out> <name>=<program>[=<user>]...")
}

func pack(out string, programs []string) error {
	f, err := os.Create(out)
	if err != nil {
		return err
	}
	return errors.Join(payload.Append(f, programs), f.Close())
}

func images(out string, specs []string) error {
	all := map[name.Reference]v1.Image{}
	for _, spec := range specs {
		ref, file, _ := strings.Cut(spec, "=")
		file, user, given := strings.Cut(file, "=")
		if !given {
			user = "65534:65534"
		}
		tag, err := name.NewTag(ref, name.StrictValidation)
		if err != nil {
			return err
		}
		if all[tag], err = image(file, user); err != nil {
			return fmt.Errorf("making image %s: %w", ref, err)
		}
	}
	return tarball.MultiRefWriteToFile(out, all)
}

// image holds one program, which it runs as a user.
func image(file, user string) (v1.Image, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	base := filepath.Base(file)
	var b bytes.Buffer
	t := tar.NewWriter(&b)
	if err := t.WriteHeader(&tar.Header{Name: base, Mode: 0o755, Size: int64(len(raw))}); err != nil {
		return nil, err
	}
	if _, err := t.Write(raw); err != nil {
		return nil, err
	}
	if err := t.Close(); err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.Bytes())), nil })
	if err != nil {
		return nil, err
	}
	img, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		return nil, err
	}
	conf, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	conf = conf.DeepCopy()
	conf.OS, conf.Architecture, conf.Created = "linux", "amd64", v1.Time{Time: time.Unix(0, 0).UTC()}
	conf.Config.Entrypoint, conf.Config.User = []string{"/" + base}, user
	return mutate.ConfigFile(img, conf)
}
