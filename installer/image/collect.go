package image

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"

	"github.com/drover-dev/drover/installer/artifact"
	"github.com/drover-dev/drover/installer/layout"
	"github.com/drover-dev/drover/installer/oci"
	"github.com/drover-dev/drover/installer/shell"
)

// collector collects the files of one architecture.
type collector struct {
	Options
	arch         string
	sums         artifact.Checksums
	checksumFile string
}

// collect finds every file of the image. Scripts, programs and container images get a layer each, since they change at
// different times. Checksums are verified later, when the files are packed.
func collect(ctx context.Context, opts Options, arch string) ([]oci.Layer, error) {
	g := &collector{Options: opts, arch: arch}
	sums, err := g.checksums(ctx)
	if err != nil {
		return nil, err
	}
	script, err := g.script(ctx)
	if err != nil {
		return nil, err
	}
	parts := []oci.Layer{{Comment: "scripts", Entries: []oci.Entry{
		oci.InMemory("run.sh", 0o755, opts.Definition.RunScript),
		oci.InMemory("lib.sh", 0o644, shell.Lib),
		sums, script,
	}}}
	artifacts := opts.Definition.Artifacts(arch)
	for _, name := range opts.AdditionalImages {
		name = g.expand(name)
		if !strings.Contains(name, "images") || !strings.Contains(name, arch+".tar") {
			return nil, fmt.Errorf("%s: the name of an archive of container images must contain %q and %q", name, "images", arch+".tar")
		}
		artifacts = append(artifacts, layout.Artifact{Images: true, Names: []string{name}, Mode: 0o644})
	}
	var program, images []oci.Entry
	for i, a := range artifacts {
		explicit := i >= len(artifacts)-len(opts.AdditionalImages)
		if a.Images && !explicit && !g.wantImages() {
			continue
		}
		e, err := g.artifact(ctx, a)
		if errors.Is(err, artifact.ErrNotFound) && a.Images && !explicit && opts.Images != ImagesAlways {
			continue
		}
		if err != nil {
			return nil, err
		}
		if a.Images {
			images = append(images, e)
		} else {
			program = append(program, e)
		}
	}
	parts = append(parts, oci.Layer{Comment: opts.Definition.Title + " " + opts.Version, Entries: program})
	if len(images) > 0 {
		parts = append(parts, oci.Layer{Comment: "container images", Entries: images})
	}
	return parts, nil
}

func (g *collector) wantImages() bool {
	return g.Images == ImagesAlways || g.Images != ImagesNever && !g.Source.Remote()
}

func (g *collector) expand(name string) string {
	return strings.ReplaceAll(name, "{arch}", g.arch)
}

// checksums reads the checksum file, which also goes into the image under its default name.
func (g *collector) checksums(ctx context.Context) (oci.Entry, error) {
	wanted := layout.ChecksumsArtifact(g.arch)
	g.checksumFile = wanted.Names[0]
	if g.Checksums != "" {
		g.checksumFile = g.expand(g.Checksums)
	}
	file, err := g.Source.Fetch(ctx, g.checksumFile)
	if err != nil {
		return oci.Entry{}, fmt.Errorf("reading the checksums of the release: %w", err)
	}
	raw, err := os.ReadFile(file.Path)
	if err != nil {
		return oci.Entry{}, fmt.Errorf("reading %s: %w", g.checksumFile, err)
	}
	if g.sums, err = artifact.ParseChecksums(raw); err != nil {
		return oci.Entry{}, fmt.Errorf("reading %s: %w", g.checksumFile, err)
	}
	return oci.InMemory(wanted.Path, wanted.Mode, raw), nil
}

// artifact finds a file under one of its names. The checksum file must list it.
func (g *collector) artifact(ctx context.Context, a layout.Artifact) (oci.Entry, error) {
	var file artifact.File
	err := artifact.ErrNotFound
	for _, name := range a.Names {
		if file, err = g.Source.Fetch(ctx, name); !errors.Is(err, artifact.ErrNotFound) {
			break
		}
	}
	if err != nil && len(a.Names) > 1 && errors.Is(err, artifact.ErrNotFound) {
		return oci.Entry{}, fmt.Errorf("%w in %s: any of %s", artifact.ErrNotFound, g.Source, strings.Join(a.Names, ", "))
	}
	if err != nil {
		return oci.Entry{}, err
	}
	sum, ok := g.sums[file.Name]
	if !ok {
		return oci.Entry{}, fmt.Errorf("%s is not listed in %s", file.Name, g.checksumFile)
	}
	e := oci.OnDisk(path.Base(file.Name), a.Mode, file.Path, file.Size)
	if a.Path != "" {
		e.Path = a.Path
	}
	e.Checksum, e.ChecksumSource = sum, g.checksumFile
	return e, nil
}

// script finds the release's install script. Published checksum files do not list it, so that the caller must give the checksum of a script
// from a network.
func (g *collector) script(ctx context.Context) (oci.Entry, error) {
	wanted := layout.ScriptArtifact()
	file, remote := artifact.File{}, false
	if g.Script != nil {
		file = *g.Script
	} else {
		found, err := g.Source.Fetch(ctx, wanted.Names[0])
		if err != nil {
			return oci.Entry{}, fmt.Errorf("reading the install script of the release (use --install-script for another one): %w", err)
		}
		file, remote = found, g.Source.Remote()
	}
	e := oci.OnDisk(wanted.Path, wanted.Mode, file.Path, file.Size)
	e.Checksum, e.ChecksumSource = strings.ToLower(g.ScriptChecksum), "--install-script-sha256"
	if e.Checksum == "" {
		e.Checksum, e.ChecksumSource = g.sums[file.Name], g.checksumFile
	}
	if e.Checksum != "" {
		return e, nil
	}
	have, err := sumOf(file.Path)
	if err != nil {
		return oci.Entry{}, err
	}
	if remote {
		return oci.Entry{}, fmt.Errorf("%s is not listed in %s: read the script, then pass --install-script-sha256=%s",
			file.Name, g.checksumFile, have)
	}
	_, _ = fmt.Fprintf(g.Notes, "Note: %s is not listed in %s; its sha256 is %s\n", file.Name, g.checksumFile, have)
	e.Checksum, e.ChecksumSource = have, "the build itself"
	return e, nil
}

func sumOf(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = file.Close() }()
	sum := sha256.New()
	if _, err := io.Copy(sum, file); err != nil {
		return "", fmt.Errorf("reading %s: %w", path, err)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}
