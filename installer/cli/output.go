package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/spf13/pflag"

	"github.com/drover-dev/drover/installer/layout"
	"github.com/drover-dev/drover/installer/oci"
	"github.com/drover-dev/drover/installer/progress"
)

// outputFlags select where the image is written.
type outputFlags struct {
	push      string
	insecure  bool
	ociLayout string
	tarball   string
	name      string
}

// register adds the flags. repository is the default name in a tarball.
func (f *outputFlags) register(set *pflag.FlagSet, repository string) {
	set.StringVar(&f.push, "push", "", "push to this repository, registry/name[:tag] (default tag: the version with - for +)")
	set.BoolVar(&f.insecure, "insecure", false, "with --push: allow a registry with plain HTTP")
	set.StringVar(&f.ociLayout, "oci-layout", "", "write an OCI layout to this directory")
	set.StringVar(&f.tarball, "tarball", "", "write a tarball in the format of docker save, of one architecture, to this file")
	set.StringVar(&f.name, "name", "", "with --tarball: name of the image in it (default "+repository+":<tag>)")
}

// target is validated outputFlags.
type target struct {
	outputFlags
	ref name.Reference
	tag string
}

// target validates the flags before anything is built.
func (f *outputFlags) target(repository, version string, architectures int) (*target, error) {
	t := &target{outputFlags: *f, tag: layout.Tag(version)}
	count := 0
	for _, flag := range []string{f.push, f.ociLayout, f.tarball} {
		if flag != "" {
			count++
		}
	}
	if count != 1 {
		return nil, errors.New("specify exactly one of --push, --oci-layout and --tarball")
	}
	if f.insecure && f.push == "" {
		return nil, errors.New("--insecure needs --push")
	}
	if f.name != "" && f.tarball == "" {
		return nil, errors.New("--name needs --tarball")
	}
	switch {
	case f.push != "":
		return t, t.parse("--push", f.push)
	case f.tarball != "":
		if architectures != 1 {
			return nil, errors.New("--tarball supports one architecture only: set one with --arch, or use --oci-layout")
		}
		if info, err := os.Stat(filepath.Dir(f.tarball)); err != nil || !info.IsDir() {
			return nil, fmt.Errorf("--tarball: directory %s does not exist", filepath.Dir(f.tarball))
		}
		wanted := f.name
		if wanted == "" {
			wanted = repository
		}
		return t, t.parse("--name", wanted)
	}
	return t, nil
}

// parse parses an image name; without a tag it gets that of the version.
func (t *target) parse(flag, wanted string) error {
	opts := []name.Option{name.WithDefaultTag(t.tag)}
	if t.insecure {
		opts = append(opts, name.Insecure)
	}
	if strings.Contains(wanted, "@") {
		return fmt.Errorf("%s: %s must not have a digest, which the build determines", flag, wanted)
	}
	ref, err := name.ParseReference(wanted, opts...)
	if err == nil && !strings.HasSuffix(wanted, ":"+ref.Identifier()) {
		// The text of a reference, which a tarball holds, lacks a default tag.
		ref, err = name.ParseReference(wanted+":"+t.tag, opts...)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", flag, err)
	}
	t.ref = ref
	return nil
}

// write writes the images and prints their reference and digest.
func (t *target) write(ctx context.Context, images []oci.Image, report *progress.Reporter, stdout io.Writer) error {
	index, err := oci.Index(images)
	if err != nil {
		return fmt.Errorf("combining the architectures: %w", err)
	}
	digest, err := index.Digest()
	if err != nil {
		return fmt.Errorf("combining the architectures: %w", err)
	}
	switch {
	case t.push != "":
		if err := oci.Push(ctx, t.ref, index, report); err != nil {
			return err
		}
		_, err = fmt.Fprintf(stdout, "%s@%s\n", t.ref, digest)
	case t.ociLayout != "":
		if err := oci.WriteLayout(t.ociLayout, t.tag, index); err != nil {
			return err
		}
		_, err = fmt.Fprintf(stdout, "%s:%s@%s\n", t.ociLayout, t.tag, digest)
	default:
		if err := oci.WriteTarball(ctx, t.tarball, t.ref, images[0]); err != nil {
			return err
		}
		_, err = fmt.Fprintf(stdout, "%s: %s\n", t.tarball, t.ref)
	}
	return err
}
