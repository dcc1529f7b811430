package image

import (
	"context"
	"fmt"
	"os"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/drover-dev/drover/installer/artefact"
	"github.com/drover-dev/drover/installer/progress"
)

const (
	// ClusterAgentRepository is the usual name of the cluster-agent's image, without a registry.
	ClusterAgentRepository = "drover/cluster-agent"
	// clusterAgentUser is nobody that a machine knows. The manifest of the cluster-agent asks for the same one.
	clusterAgentUser = "65532:65532"
)

// ClusterAgentOptions say what the image of the cluster-agent is made of. Its one program is the static system-agent.
type ClusterAgentOptions struct {
	Version       string
	Architectures []string
	// Source has system-agent-<architecture> and system-agent-<architecture>.sha256.
	Source artefact.Source
	// CACertificates is a file of certificate authorities in PEM, for hubs whose certificate is not of their own authority; empty means none.
	CACertificates string
	// TempDir holds the layers; the images read from it as long as they are used.
	TempDir  string
	Progress *progress.Reporter
}

// BuildClusterAgent makes the images of all architectures.
func BuildClusterAgent(ctx context.Context, opts ClusterAgentOptions) ([]Image, error) {
	images := make([]Image, 0, len(opts.Architectures))
	for _, arch := range opts.Architectures {
		program, err := agentProgram(ctx, opts.Source, arch)
		if err != nil {
			return nil, fmt.Errorf("gathering the agent for %s: %w", arch, err)
		}
		parts := []part{{comment: "system-agent " + opts.Version, entries: []entry{program}}}
		if opts.CACertificates != "" {
			info, err := os.Stat(opts.CACertificates)
			if err != nil {
				return nil, err
			}
			// One of the places where Go's programs look.
			parts = append(parts, part{comment: "certificate authorities", entries: []entry{
				onDisk("etc/ssl/certs/ca-certificates.crt", 0o644, artefact.File{Path: opts.CACertificates, Size: info.Size()}),
			}})
		}
		config := v1.Config{
			Entrypoint: []string{"/system-agent"}, Cmd: []string{"cluster"}, User: clusterAgentUser, WorkingDir: "/",
			Labels: labels("cluster-agent", "Connects a cluster to its hub", opts.Version),
		}
		img, err := assemble(ctx, packing{opts.TempDir, opts.Progress}, arch, config, parts)
		if err != nil {
			return nil, fmt.Errorf("building the image for %s: %w", arch, err)
		}
		images = append(images, Image{Arch: arch, Image: img})
	}
	return images, nil
}

// agentProgram is the agent for one architecture, with the checksum that lies beside it.
func agentProgram(ctx context.Context, source artefact.Source, arch string) (entry, error) {
	name := "system-agent-" + arch
	sums, err := readChecksums(ctx, source, name+".sha256")
	if err != nil {
		return entry{}, err
	}
	file, err := source.Fetch(ctx, name)
	if err != nil {
		return entry{}, err
	}
	program := onDisk("system-agent", 0o755, file)
	if program.sum = sums[name]; program.sum == "" {
		return entry{}, fmt.Errorf("%s has no line in %s.sha256", name, name)
	}
	program.sumFrom = name + ".sha256"
	return program, nil
}

func readChecksums(ctx context.Context, source artefact.Source, name string) (artefact.Checksums, error) {
	file, err := source.Fetch(ctx, name)
	if err != nil {
		return nil, err
	}
	raw, err := os.ReadFile(file.Path)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", name, err)
	}
	sums, err := artefact.ParseChecksums(raw)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", name, err)
	}
	return sums, nil
}
