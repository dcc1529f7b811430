package cli

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"

	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/installer/artifact"
	"github.com/drover-dev/drover/installer/image"
	"github.com/drover-dev/drover/installer/layout"
	"github.com/drover-dev/drover/installer/progress"
)

// clusterAgentFlags are the flags of "installer build cluster-agent".
type clusterAgentFlags struct {
	version        string
	architectures  []string
	from           string
	caCertificates string
	output         outputFlags
}

const clusterAgentExample = `  # push what "make agent" has built, for both architectures
  installer build cluster-agent --version v1.2.3 --arch amd64,arm64 --from bin/assets \
    --push registry.example.com/drover/cluster-agent

  # for imagesDirectory of a machine without a registry
  installer build cluster-agent --version v1.2.3 --from bin/assets --tarball cluster-agent.tar`

func newBuildClusterAgentCommand() *cobra.Command {
	flags := &clusterAgentFlags{}
	cmd := &cobra.Command{
		Use:   "cluster-agent",
		Short: "Build the image of the cluster-agent",
		Long: `Builds the image of the cluster-agent: the static system-agent, and certificate
authorities if they are given.

The agents are verified against the checksums beside them. Builds are reproducible: the
same files give the same digest.`,
		Example: clusterAgentExample,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return flags.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	set := cmd.Flags()
	set.StringVar(&flags.version, "version", "", "version of the agent, and the tag of the image; hubs ask for the image of their own version")
	set.StringSliceVar(&flags.architectures, "arch", []string{"amd64"}, "architectures: amd64, arm64, or both separated by a comma")
	set.StringVar(&flags.from, "from", "", "directory or https URL with system-agent-<architecture> and its .sha256")
	set.StringVar(&flags.caCertificates, "ca-certificates", "",
		"PEM file of certificate authorities to include, for hubs with a publicly trusted certificate")
	flags.output.register(set, image.ClusterAgentRepository)
	for _, required := range []string{"version", "from"} {
		_ = cmd.MarkFlagRequired(required)
	}
	return cmd
}

// run builds and writes the images.
func (f *clusterAgentFlags) run(ctx context.Context, stdout, stderr io.Writer) (err error) {
	if err := f.check(); err != nil {
		return err
	}
	target, err := f.output.target(image.ClusterAgentRepository, f.version, len(f.architectures))
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "installer-build-")
	if err != nil {
		return fmt.Errorf("creating a temporary directory: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()

	report := &progress.Reporter{Out: stderr}
	source, err := artifact.Open(f.from, artifact.Options{TempDir: dir, Progress: report})
	if err != nil {
		return fmt.Errorf("--from: %w", err)
	}
	images, err := image.BuildClusterAgent(ctx, image.ClusterAgentOptions{Version: f.version, Architectures: f.architectures, Source: source,
		CACertificates: f.caCertificates, TempDir: dir, Progress: report})
	if err != nil {
		return err
	}
	return target.write(ctx, images, report, stdout)
}

// tagPattern matches valid tags, after layout.Tag has replaced "+".
var tagPattern = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$`)

func (f *clusterAgentFlags) check() error {
	if !tagPattern.MatchString(layout.Tag(f.version)) {
		return fmt.Errorf("--version: %q is not valid as an image tag: use letters, digits and any of . _ - +, such as v1.2.3", f.version)
	}
	if err := checkArchitectures(f.architectures); err != nil {
		return err
	}
	if f.caCertificates == "" {
		return nil
	}
	raw, err := os.ReadFile(f.caCertificates)
	if err != nil {
		return fmt.Errorf("--ca-certificates: %w", err)
	}
	if !x509.NewCertPool().AppendCertsFromPEM(raw) {
		return fmt.Errorf("--ca-certificates: no certificate found in %s", f.caCertificates)
	}
	return nil
}
