// Package cli holds the commands of the agent: their arguments, what they start, and how they end. It decides nothing about plans.
package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/agent/config"
)

// Version is set by the build with -ldflags "-X github.com/drover-dev/drover/agent/cli.Version=v1.2.3".
var Version = "dev"

// Main runs the command line and returns the exit code: 0, or 1 after a line on stderr that says what is wrong.
func Main(args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	if err := root.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(stderr, "system-agent:", strings.ReplaceAll(err.Error(), "\n", "; "))
		return 1
	}
	return 0
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "system-agent",
		Short:         "Applies the plans of a hub to this machine",
		Version:       Version,
		SilenceUsage:  true,
		SilenceErrors: true,
		CompletionOptions: cobra.CompletionOptions{
			DisableDefaultCmd: true,
		},
	}
	root.SetVersionTemplate("system-agent version {{.Version}}\n")
	root.AddCommand(newRun(), newValidateConfig(), newValidateConnection(), newVersion())
	return root
}

func newValidateConfig() *cobra.Command {
	return &cobra.Command{
		Use:   "validate-config <file>",
		Short: "Check a configuration file; the exit code tells",
		Args:  cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			_, err := config.Load(args[0])
			return err
		},
	}
}

func newValidateConnection() *cobra.Command {
	return &cobra.Command{
		Use:   "validate-connection <file>",
		Short: "Check a connection info file; the exit code tells",
		Long:  "Check a connection info file without contacting the hub. The exit code tells.",
		Args:  cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			_, err := config.LoadConnection(args[0])
			return err
		},
	}
}

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Show the agent's version",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "system-agent %s %s/%s %s\n", Version, runtime.GOOS, runtime.GOARCH, runtime.Version())
			return err
		},
	}
}
