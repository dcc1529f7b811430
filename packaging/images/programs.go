package images

import (
	"context"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/drover-dev/drover/installer/artifact"
	"github.com/drover-dev/drover/installer/image"
	"github.com/drover-dev/drover/installer/layout"
	"github.com/drover-dev/drover/installer/oci"
	"github.com/drover-dev/drover/packaging/notices"
)

// searchPath is the PATH in the images: people call the programs by name with kubectl exec.
const searchPath = "PATH=/opt/drover:/usr/local/bin:/usr/bin:/bin"

// licenses is the directory of the licenses in the images, which Red Hat requires of those that it certifies.
const licenses = "licenses"

// program is an image of programs of this repository.
type program struct {
	name, title, description string
	// files returns the programs of the image of an architecture, by their path in the image.
	files func(arch string) map[string]binary
	// config returns what the container runs.
	config v1.Config
}

// programs are all images but installers.
var programs = []program{
	{
		name: "hub", title: "Drover hub", description: "Turns machines into RKE2 and k3s clusters and manages them",
		// The hub hands out the agents of all architectures, from the directory that it is in.
		files: func(arch string) map[string]binary {
			files := map[string]binary{"opt/drover/hub": {arch, "hub"}}
			for _, machine := range layout.Architectures {
				files["opt/drover/system-agent-"+machine] = binary{machine, "system-agent"}
			}
			return files
		},
		config: v1.Config{Entrypoint: []string{"/opt/drover/hub"}, Cmd: []string{"serve"}, User: "65532:65532", WorkingDir: "/home/nonroot"},
	},
	{
		name: "system-agent", title: "Drover system-agent", description: "Installs and upgrades the system-agent on a Kubernetes node",
		files: func(arch string) map[string]binary {
			return map[string]binary{"opt/drover/system-agent": {arch, "system-agent"}}
		},
		// Only root may change the root directory to that of the node.
		config: v1.Config{Entrypoint: []string{"/opt/drover/system-agent"}, Cmd: []string{"upgrade-node"}, User: "0:0", WorkingDir: "/"},
	},
	{
		name: "cluster-agent", title: "Drover cluster-agent", description: "Connects a cluster to its hub",
		files: func(arch string) map[string]binary {
			return map[string]binary{"system-agent": {arch, "system-agent"}}
		},
		config: v1.Config{Entrypoint: []string{"/system-agent"}, Cmd: []string{"cluster"}, User: "65532:65532", WorkingDir: "/"},
	},
}

// Names are the images that Build builds, installers aside.
func Names() []string {
	var names []string
	for _, p := range programs {
		names = append(names, p.name)
	}
	return names
}

func (o *Options) wants(name string) bool { return len(o.Only) == 0 || slices.Contains(o.Only, name) }

// binary is a program as "make cross" leaves it.
type binary struct{ arch, name string }

func (b binary) file(directory string) string {
	return filepath.Join(directory, "linux-"+b.arch, b.name)
}

// build builds an image for all architectures.
func (p program) build(ctx context.Context, builder oci.Builder, collector *notices.Collector, opts Options) (Image, error) {
	built := Image{
		Name: p.name, Repository: "drover/" + p.name, Tag: layout.Tag(opts.Version),
		title: p.title, description: p.description, version: opts.Version,
	}
	for _, arch := range opts.Architectures {
		layer, err := p.layer(ctx, collector, arch, opts)
		if err != nil {
			return Image{}, err
		}
		config := p.config
		config.Env = []string{searchPath, "SSL_CERT_FILE=/" + bundlePath}
		config.Labels = builder.Labels(p.title, p.description, opts.Version)
		img, err := builder.Image(ctx, arch, config, []oci.Layer{baseLayer(opts.Certificates), layer})
		if err != nil {
			return Image{}, fmt.Errorf("for %s: %w", arch, err)
		}
		built.Architectures = append(built.Architectures, img)
	}
	return built, nil
}

// layer is the layer of the programs and of their licenses.
func (p program) layer(ctx context.Context, collector *notices.Collector, arch string, opts Options) (oci.Layer, error) {
	layer := oci.Layer{Comment: p.title + " " + opts.Version, Entries: []oci.Entry{releaseFile(p.name, opts)}}
	directories := map[string]bool{licenses: true}
	var files []string
	for path, file := range p.files(arch) {
		entry, err := file.entry(path, opts.Binaries)
		if err != nil {
			return oci.Layer{}, err
		}
		layer.Entries, files = append(layer.Entries, entry), append(files, file.file(opts.Binaries))
		for dir := filepath.Dir(path); dir != "."; dir = filepath.Dir(dir) {
			directories[dir] = true
		}
	}
	text, err := collector.Collect(ctx, files...)
	if err != nil {
		return oci.Layer{}, err
	}
	layer.Entries = append(layer.Entries, oci.InMemory(licenses+"/LICENSE", 0o644, opts.License),
		oci.InMemory(licenses+"/"+notices.FileName, 0o644, text))
	for dir := range directories {
		layer.Entries = append(layer.Entries, oci.Directory(dir, 0o755))
	}
	return layer, nil
}

// entry is the program at a path of the image. One that would not start there is refused: of another architecture, or with a dynamic
// linker.
func (b binary) entry(path, directory string) (oci.Entry, error) {
	file := b.file(directory)
	in, err := os.Open(file)
	if errors.Is(err, os.ErrNotExist) {
		return oci.Entry{}, fmt.Errorf("%w; build the programs with make cross", err)
	}
	if err != nil {
		return oci.Entry{}, err
	}
	defer func() { _ = in.Close() }()
	info, err := in.Stat()
	if err != nil {
		return oci.Entry{}, err
	}
	if err := checkStatic(in, b.arch); err != nil {
		return oci.Entry{}, fmt.Errorf("%s: %w", file, err)
	}
	// What was checked and what is packed must be the same.
	sum := sha256.New()
	if _, err := io.Copy(sum, in); err != nil {
		return oci.Entry{}, fmt.Errorf("reading %s: %w", file, err)
	}
	entry := oci.OnDisk(path, 0o755, file, info.Size())
	entry.Checksum, entry.ChecksumSource = hex.EncodeToString(sum.Sum(nil)), "the file when the build began"
	return entry, nil
}

// machines are the architectures of ELF headers, as Go names them.
var machines = map[elf.Machine]string{elf.EM_X86_64: "amd64", elf.EM_AARCH64: "arm64"}

func checkStatic(in io.ReaderAt, arch string) error {
	program, err := elf.NewFile(in)
	if err != nil {
		return fmt.Errorf("not a program for Linux: %w", err)
	}
	if machines[program.Machine] != arch {
		return fmt.Errorf("program is for %s, not for %s", program.Machine, arch)
	}
	for _, part := range program.Progs {
		if part.Type == elf.PT_INTERP {
			return errors.New("program needs a dynamic linker, which the images do not have: build it with CGO_ENABLED=0")
		}
	}
	return nil
}

// build builds the installer image of a release for all architectures.
func (r Release) build(ctx context.Context, opts Options) (Image, error) {
	source, err := artifact.Open(r.Directory, artifact.Options{TempDir: opts.TempDir, Progress: opts.Progress})
	if err != nil {
		return Image{}, err
	}
	images, err := image.Build(ctx, image.Options{
		Definition: r.Definition, Version: r.Version, Architectures: opts.Architectures, Source: source,
		Created: opts.Created, TempDir: opts.TempDir, Progress: opts.Progress,
	})
	if err != nil {
		return Image{}, err
	}
	name := "system-agent-installer-" + r.Definition.Runtime
	return Image{
		Name: name, Repository: r.Definition.Repository(), Tag: layout.Tag(r.Version), Architectures: images,
		title: name, description: "Installs " + r.Definition.Title + " on a machine; run by its system-agent", version: r.Version,
	}, nil
}
