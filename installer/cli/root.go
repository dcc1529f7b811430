// Package cli is the command line of the installer: it validates flags, calls installer/image and prints the result to stdout, and notes
// and progress to stderr.
package cli

import (
	"github.com/spf13/cobra"
)

// Version is set by the build with -ldflags "-X github.com/drover-dev/drover/installer/cli.Version=v1.2.3".
var Version = "dev"

// NewCommand returns the command "installer".
func NewCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "installer",
		Short: "Build installer and cluster-agent images",
		Long: `Builds the images from which system-agents install k3s and RKE2, and the image of the
cluster-agent.

A plan names an installer image; the machine's agent unpacks it and runs its run.sh, which
installs the distribution and starts or restarts it. Docker is not needed.`,
		Version:       Version,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	cmd.AddCommand(newBuildCommand())
	return cmd
}
