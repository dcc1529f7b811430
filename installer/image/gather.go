package image

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"

	"github.com/drover-dev/drover/installer/artefact"
	"github.com/drover-dev/drover/installer/layout"
	"github.com/drover-dev/drover/installer/shell"
)

// part is a layer to be.
type part struct {
	comment string
	entries []entry
}

// gatherer collects the files of one architecture.
type gatherer struct {
	Options
	arch    string
	sums    artefact.Checksums
	sumFile string
}

// gather finds every file of the image. Scripts, programs and container images get a layer each, since they change at
// different times. Sums are compared later, when the files are packed.
func gather(ctx context.Context, opts Options, arch string) ([]part, error) {
	g := &gatherer{Options: opts, arch: arch}
	sums, err := g.checksums(ctx)
	if err != nil {
		return nil, err
	}
	script, err := g.script(ctx)
	if err != nil {
		return nil, err
	}
	parts := []part{{comment: "scripts", entries: []entry{
		inMemory("run.sh", 0o755, opts.Definition.RunScript),
		inMemory("lib.sh", 0o644, shell.Lib),
		sums, script,
	}}}
	artefacts := opts.Definition.Artefacts(arch)
	for _, name := range opts.MoreImages {
		name = g.expand(name)
		if !strings.Contains(name, "images") || !strings.Contains(name, arch+".tar") {
			return nil, fmt.Errorf("%s: the name of a tarball of container images has %q and %q in it", name, "images", arch+".tar")
		}
		artefacts = append(artefacts, layout.Artefact{Kind: layout.Images, Names: []string{name}, Mode: 0o644})
	}
	byKind := map[layout.Kind][]entry{}
	for i, a := range artefacts {
		explicit := i >= len(artefacts)-len(opts.MoreImages)
		if a.Kind == layout.Images && !explicit && !g.wantImages() {
			continue
		}
		e, err := g.artefact(ctx, a)
		if errors.Is(err, artefact.ErrNotFound) && a.Kind == layout.Images && !explicit && opts.Images != ImagesAlways {
			continue
		}
		if err != nil {
			return nil, err
		}
		byKind[a.Kind] = append(byKind[a.Kind], e)
	}
	parts = append(parts, part{comment: opts.Definition.Title + " " + opts.Version, entries: byKind[layout.Program]})
	if images := byKind[layout.Images]; len(images) > 0 {
		parts = append(parts, part{comment: "container images", entries: images})
	}
	return parts, nil
}

func (g *gatherer) wantImages() bool {
	return g.Images == ImagesAlways || g.Images != ImagesNever && !g.Source.Remote()
}

func (g *gatherer) expand(name string) string {
	return strings.ReplaceAll(name, "{arch}", g.arch)
}

// checksums reads the checksum file, which also goes into the image under its usual name.
func (g *gatherer) checksums(ctx context.Context) (entry, error) {
	wanted := layout.ChecksumsArtefact(g.arch)
	g.sumFile = wanted.Names[0]
	if g.Checksums != "" {
		g.sumFile = g.expand(g.Checksums)
	}
	file, err := g.Source.Fetch(ctx, g.sumFile)
	if err != nil {
		return entry{}, fmt.Errorf("the checksums of the release: %w", err)
	}
	raw, err := os.ReadFile(file.Path)
	if err != nil {
		return entry{}, fmt.Errorf("reading %s: %w", g.sumFile, err)
	}
	if g.sums, err = artefact.ParseChecksums(raw); err != nil {
		return entry{}, fmt.Errorf("reading %s: %w", g.sumFile, err)
	}
	return inMemory(wanted.Path, wanted.Mode, raw), nil
}

// artefact finds a file under one of its names; it must have a line in the checksum file.
func (g *gatherer) artefact(ctx context.Context, a layout.Artefact) (entry, error) {
	var file artefact.File
	err := artefact.ErrNotFound
	for _, name := range a.Names {
		if file, err = g.Source.Fetch(ctx, name); !errors.Is(err, artefact.ErrNotFound) {
			break
		}
	}
	if err != nil && len(a.Names) > 1 && errors.Is(err, artefact.ErrNotFound) {
		return entry{}, fmt.Errorf("%w in %s under any of its names: %s", artefact.ErrNotFound, g.Source, strings.Join(a.Names, ", "))
	}
	if err != nil {
		return entry{}, err
	}
	sum, ok := g.sums[file.Name]
	if !ok {
		return entry{}, fmt.Errorf("%s has no line in %s", file.Name, g.sumFile)
	}
	e := onDisk(path.Base(file.Name), a.Mode, file)
	if a.Path != "" {
		e.path = a.Path
	}
	e.sum, e.sumFrom = sum, g.sumFile
	return e, nil
}

// script finds the release's install script. Published checksum files do not list it, so that a script from a network has
// to be vouched for by the caller.
func (g *gatherer) script(ctx context.Context) (entry, error) {
	wanted := layout.ScriptArtefact()
	file, remote := artefact.File{}, false
	if g.Script != nil {
		file = *g.Script
	} else {
		found, err := g.Source.Fetch(ctx, wanted.Names[0])
		if err != nil {
			return entry{}, fmt.Errorf("the install script of the release (--install-script names another place): %w", err)
		}
		file, remote = found, g.Source.Remote()
	}
	e := onDisk(wanted.Path, wanted.Mode, file)
	e.sum, e.sumFrom = strings.ToLower(g.ScriptSum), "--install-script-sha256"
	if e.sum == "" {
		e.sum, e.sumFrom = g.sums[file.Name], g.sumFile
	}
	if e.sum != "" {
		return e, nil
	}
	have, err := sumOf(file.Path)
	if err != nil {
		return entry{}, err
	}
	if remote {
		return entry{}, fmt.Errorf("%s has no line in %s: read the script, then pass --install-script-sha256=%s", file.Name, g.sumFile, have)
	}
	_, _ = fmt.Fprintf(g.Notes, "Note: %s has no line in %s; its sha256 is %s\n", file.Name, g.sumFile, have)
	e.sum, e.sumFrom = have, "the first look at it"
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

func inMemory(path string, mode int64, content []byte) entry {
	return entry{path: path, mode: mode, size: int64(len(content)), open: func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(content)), nil
	}}
}

func onDisk(path string, mode int64, file artefact.File) entry {
	return entry{path: path, mode: mode, size: file.Size, open: func() (io.ReadCloser, error) { return os.Open(file.Path) }}
}
