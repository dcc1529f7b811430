package cli

import (
	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/agent/host"
)

// newShim is the command by which the agent runs an instruction in a unit of its own; people have no use for it.
func newShim() *cobra.Command {
	return &cobra.Command{
		Use:    host.ShimCommand + " <spool>",
		Short:  "Run the instruction that a spool describes",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			return host.RunInstruction(args[0])
		},
	}
}
