package image

import (
	"context"
	"fmt"
	"os"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/drover-dev/drover/installer/artifact"
	"github.com/drover-dev/drover/installer/progress"
)

const (
	// ClusterAgentRepository is the default name of the cluster-agent's image, without a registry.
	ClusterAgentRepository = "drover/cluster-agent"
	// clusterAgentUser is a user ID that no machine uses, as in distroless images. The manifest of the cluster-agent sets the same one.
	clusterAgentUser = "65532:65532"
)

// ClusterAgentOptions of BuildClusterAgent. The image's only program is the static system-agent.
type ClusterAgentOptions struct {
	// Version of the agent, for labels and history.
	Version string
	// Architectures are those to build for, as Go names them.
	Architectures []string
	// Source has system-agent-<architecture> and system-agent-<architecture>.sha256.
	Source artifact.Source
	// CACertificates is the path of a PEM file of certificate authorities, for hubs with a publicly trusted certificate; empty adds none.
	CACertificates string
	// TempDir holds the layers; it must exist as long as the images are used.
	TempDir string
	// Progress reports long copies; nil reports none.
	Progress *progress.Reporter
}

// BuildClusterAgent builds the images of all architectures.
func BuildClusterAgent(ctx context.Context, opts ClusterAgentOptions) ([]Image, error) {
	images := make([]Image, 0, len(opts.Architectures))
	for _, arch := range opts.Architectures {
		program, err := agentProgram(ctx, opts.Source, arch)
		if err != nil {
			return nil, fmt.Errorf("collecting the agent for %s: %w", arch, err)
		}
		parts := []layerSpec{{comment: "system-agent " + opts.Version, entries: []entry{program}}}
		if opts.CACertificates != "" {
			info, err := os.Stat(opts.CACertificates)
			if err != nil {
				return nil, err
			}
			// One of the files that crypto/x509 reads.
			parts = append(parts, layerSpec{comment: "certificate authorities", entries: []entry{
				onDisk("etc/ssl/certs/ca-certificates.crt", 0o644, artifact.File{Path: opts.CACertificates, Size: info.Size()}),
			}})
		}
		config := v1.Config{
			Entrypoint: []string{"/system-agent"}, Cmd: []string{"cluster"}, User: clusterAgentUser, WorkingDir: "/",
			Labels: labels("cluster-agent", "Connects a cluster to its hub", opts.Version),
		}
		img, err := assemble(ctx, layerOptions{opts.TempDir, opts.Progress}, arch, config, parts)
		if err != nil {
			return nil, fmt.Errorf("building the image for %s: %w", arch, err)
		}
		images = append(images, Image{Arch: arch, Image: img})
	}
	return images, nil
}

// agentProgram returns the agent for one architecture with the checksum from the file beside it.
func agentProgram(ctx context.Context, source artifact.Source, arch string) (entry, error) {
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
	if program.checksum = sums[name]; program.checksum == "" {
		return entry{}, fmt.Errorf("%s is not listed in %s.sha256", name, name)
	}
	program.checksumSource = name + ".sha256"
	return program, nil
}

func readChecksums(ctx context.Context, source artifact.Source, name string) (artifact.Checksums, error) {
	file, err := source.Fetch(ctx, name)
	if err != nil {
		return nil, err
	}
	raw, err := os.ReadFile(file.Path)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", name, err)
	}
	sums, err := artifact.ParseChecksums(raw)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", name, err)
	}
	return sums, nil
}
