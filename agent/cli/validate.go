package cli

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/agent/config"
	"github.com/drover-dev/drover/agent/trust"
)

func newValidateConfig() *cobra.Command {
	return &cobra.Command{
		Use:   "validate-config <file>",
		Short: "Check a configuration file; the exit code tells",
		Long: "Check a configuration file: that it is root's own with mode 0600, that it can be decoded, and that the agent could work with\n" +
			"it. Nothing is made or changed. The exit code tells.",
		Example: "  system-agent validate-config /etc/rancher/agent/config.yaml",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := config.Load(args[0])
			if err != nil {
				return err
			}
			if err := signaturesCanBeEnforced(cfg); err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			fmt.Fprintf(out, "%s: owner, mode and keys are fine\n", args[0])
			if cfg.RemoteEnabled {
				fmt.Fprintf(out, "  plans of the hub: the connection info is %s%s\n", cfg.ConnectionInfoFile, missing(cfg.ConnectionInfoFile))
			}
			if cfg.LocalEnabled {
				made := missing(cfg.LocalPlanDirectory)
				if made != "" {
					made += " and is made when the agent starts"
				}
				fmt.Fprintf(out, "  local plans: from %s%s\n", cfg.LocalPlanDirectory, made)
			}
			fmt.Fprintf(out, "  state in %s, work in %s, images in %s\n", cfg.StateDirectory, cfg.WorkDirectory, cfg.ImagesDirectory)
			return nil
		},
	}
}

// signaturesCanBeEnforced looks for the key where signatures are to be enforced. A machine that has not registered yet gets it then.
func signaturesCanBeEnforced(cfg config.Config) error {
	if !cfg.RemoteEnabled || cfg.PlanSignatures != config.SignaturesEnforce {
		return nil
	}
	connection, err := config.LoadConnection(cfg.ConnectionInfoFile)
	if err == nil && connection.PlanSigningKey == "" {
		return trust.ErrNoKey
	}
	return nil
}

// missing says of a path that it is not there; what the agent will do about that is not promised here.
func missing(path string) string {
	if _, err := os.Stat(path); err != nil && os.IsNotExist(err) {
		return ", which is not there yet"
	}
	return ""
}

func newValidateConnection() *cobra.Command {
	return &cobra.Command{
		Use:     "validate-connection <file>",
		Short:   "Check a connection info file; the exit code tells",
		Long:    "Check a connection info file without contacting the hub. The exit code tells.",
		Example: "  system-agent validate-connection /var/lib/rancher/agent/rancher2_connection_info.json",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			connection, err := config.LoadConnection(args[0])
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s: owner, mode and fields are fine; the plan is %s/%s\n", args[0], connection.Namespace, connection.SecretName)
			return nil
		},
	}
}
