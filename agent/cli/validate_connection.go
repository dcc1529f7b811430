package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/agent/config"
)

func newValidateConnection() *cobra.Command {
	return &cobra.Command{
		Use:     "validate-connection <file>",
		Short:   "Validate a connection info file",
		Long:    "Validate a connection info file without contacting the hub. The exit code is 0 if the file is valid.",
		Example: "  system-agent validate-connection /var/lib/rancher/agent/rancher2_connection_info.json",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			connection, err := config.LoadConnection(args[0])
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s: valid, plan Secret %s/%s\n", args[0], connection.Namespace, connection.SecretName)
			return nil
		},
	}
}
