// Package cli is the command line of the installer: it reads flags, calls installer/image and prints the outcome. Results go
// to the standard output, notes and progress to the standard error.
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
		Short: "Build the images with which system-agents install k3s and RKE2, and that of the cluster-agent",
		Long: `Builds the images with which system-agents install k3s and RKE2, and that of the cluster-agent.

A plan names such an image; the machine's agent unpacks it and runs its run.sh, which
installs the distribution and starts or restarts it. Docker is not needed.`,
		Version:       Version,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	cmd.AddCommand(newBuildCommand())
	return cmd
}
