package cli

import (
	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/agent/host/run"
)

// newShim is the main process of the transient unit in which the agent runs an instruction.
func newShim() *cobra.Command {
	return &cobra.Command{
		Use:    run.ShimCommand + " <run directory>",
		Short:  "Run the instruction of a run directory",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			return run.Shim(args[0])
		},
	}
}
