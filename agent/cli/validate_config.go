package cli

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/agent/config"
	"github.com/drover-dev/drover/agent/trust"
)

func newValidateConfig() *cobra.Command {
	return &cobra.Command{
		Use:   "validate-config <file>",
		Short: "Validate a configuration file",
		Long: "Validate a configuration file: owner root, mode 0600, syntax, and values that the agent can run with. Nothing is created or\n" +
			"changed. The exit code is 0 if the file is valid.",
		Example: "  system-agent validate-config /etc/rancher/agent/config.yaml",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := config.Load(args[0])
			if err != nil {
				return err
			}
			if err := validateSigningKey(cfg); err != nil {
				return err
			}
			// The install script passes the level with which the agent is to be started.
			if _, err := newLog(io.Discard, os.Getenv(envLogLevel)); err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			fmt.Fprintf(out, "%s: valid\n", args[0])
			if unknown, err := config.UnknownKeys(args[0]); err == nil && len(unknown) > 0 {
				fmt.Fprintf(out, "  ignored, since they are unknown: %s\n", strings.Join(unknown, ", "))
			}
			if cfg.RemoteEnabled {
				file := cfg.ConnectionInfoFile
				fmt.Fprintf(out, "  plans from the hub: connection info %s%s\n", file, ifMissing(file, " (missing)"))
			}
			if cfg.LocalEnabled {
				directory := cfg.LocalPlanDirectory
				fmt.Fprintf(out, "  local plans: %s%s\n", directory, ifMissing(directory, " (missing, created when the agent starts)"))
			}
			fmt.Fprintf(out, "  state: %s, work: %s, images: %s\n", cfg.StateDirectory, cfg.WorkDirectory, cfg.ImagesDirectory)
			return nil
		},
	}
}

// validateSigningKey requires the key of plan signatures if they are enforced. A machine that is not registered yet gets it with the
// registration.
func validateSigningKey(cfg config.Config) error {
	if !cfg.RemoteEnabled || cfg.PlanSignatures != config.SignaturesEnforce {
		return nil
	}
	connection, err := config.LoadConnection(cfg.ConnectionInfoFile)
	if err == nil && connection.PlanSigningKey == "" {
		return trust.ErrNoKey
	}
	return nil
}

// ifMissing returns text if nothing is at path.
func ifMissing(path, text string) string {
	if _, err := os.Stat(path); os.IsNotExist(err) {
		return text
	}
	return ""
}
