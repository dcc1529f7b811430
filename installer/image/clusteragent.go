package image

import (
	"context"
	"fmt"
	"os"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/drover-dev/drover/installer/artifact"
	"github.com/drover-dev/drover/installer/oci"
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
	// Created is the time of the files and images; the default is the beginning of 1970.
	Created time.Time
	// TempDir holds the layers; it must exist as long as the images are used.
	TempDir string
	// Progress reports long copies; nil reports none.
	Progress *progress.Reporter
}

// BuildClusterAgent builds the images of all architectures.
func BuildClusterAgent(ctx context.Context, opts ClusterAgentOptions) ([]oci.Image, error) {
	builder := oci.Builder{Dir: opts.TempDir, Created: opts.Created, CreatedBy: createdBy, Progress: opts.Progress}
	images := make([]oci.Image, 0, len(opts.Architectures))
	for _, arch := range opts.Architectures {
		program, err := agentProgram(ctx, opts.Source, arch)
		if err != nil {
			return nil, fmt.Errorf("collecting the agent for %s: %w", arch, err)
		}
		parts := []oci.Layer{{Comment: "system-agent " + opts.Version, Entries: []oci.Entry{program}}}
		if opts.CACertificates != "" {
			info, err := os.Stat(opts.CACertificates)
			if err != nil {
				return nil, err
			}
			// One of the files that crypto/x509 reads.
			parts = append(parts, oci.Layer{Comment: "certificate authorities", Entries: []oci.Entry{
				oci.OnDisk("etc/ssl/certs/ca-certificates.crt", 0o644, opts.CACertificates, info.Size()),
			}})
		}
		config := v1.Config{
			Entrypoint: []string{"/system-agent"}, Cmd: []string{"cluster"}, User: clusterAgentUser, WorkingDir: "/",
			Labels: builder.Labels("cluster-agent", "Connects a cluster to its hub", opts.Version),
		}
		img, err := builder.Image(ctx, arch, config, parts)
		if err != nil {
			return nil, fmt.Errorf("building the image for %s: %w", arch, err)
		}
		images = append(images, img)
	}
	return images, nil
}

// agentProgram returns the agent for one architecture with the checksum from the file beside it.
func agentProgram(ctx context.Context, source artifact.Source, arch string) (oci.Entry, error) {
	name := "system-agent-" + arch
	sums, err := readChecksums(ctx, source, name+".sha256")
	if err != nil {
		return oci.Entry{}, err
	}
	file, err := source.Fetch(ctx, name)
	if err != nil {
		return oci.Entry{}, err
	}
	program := oci.OnDisk("system-agent", 0o755, file.Path, file.Size)
	if program.Checksum = sums[name]; program.Checksum == "" {
		return oci.Entry{}, fmt.Errorf("%s is not listed in %s.sha256", name, name)
	}
	program.ChecksumSource = name + ".sha256"
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
