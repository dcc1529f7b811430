package cli

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"
)

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Show the agent's version",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), versionText())
			return err
		},
	}
}

// versionText is the version, the platform and the Go version in one line.
func versionText() string {
	return fmt.Sprintf("system-agent %s %s/%s %s", Version, runtime.GOOS, runtime.GOARCH, runtime.Version())
}
