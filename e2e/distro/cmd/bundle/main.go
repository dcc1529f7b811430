// Command bundle puts a release together from the programs that build.sh has compiled:
//
//	bundle program <out> <k3s> <program>...   the program k3s with the others inside
//	bundle images <out> <name>=<program>...   an archive of container images, each holding one program
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
	case len(args) > 3 && args[0] == "program":
		return program(args[1], args[2], args[3:])
	case len(args) > 2 && args[0] == "images":
		return images(args[1], args[2:])
	}
	return errors.New("usage: bundle program <out> <k3s> <program>... | bundle images <out> <name>=<program>...")
}

func program(out, k3s string, others []string) error {
	head, err := os.ReadFile(k3s)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(out, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	if _, err = f.Write(head); err == nil {
		err = payload.Append(f, others)
	}
	return errors.Join(err, f.Close())
}

func images(out string, specs []string) error {
	all := map[name.Reference]v1.Image{}
	for _, spec := range specs {
		ref, file, _ := strings.Cut(spec, "=")
		tag, err := name.NewTag(ref, name.StrictValidation)
		if err != nil {
			return err
		}
		if all[tag], err = image(file); err != nil {
			return fmt.Errorf("making image %s: %w", ref, err)
		}
	}
	return tarball.MultiRefWriteToFile(out, all)
}

// image holds one program, which it runs as user 65534.
func image(file string) (v1.Image, error) {
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
	conf.Config.Entrypoint, conf.Config.User = []string{"/" + base}, "65534:65534"
	return mutate.ConfigFile(img, conf)
}
