package cli

import (
	"fmt"

	"github.com/drover-dev/drover/plans"
	"github.com/spf13/cobra"
)

func newRetry() *cobra.Command {
	var t target
	cmd := &cobra.Command{
		Use:   "retry",
		Short: "Retry a failed plan now",
		Long: `Retry a failed plan now, without waiting for the back-off, and also if the number of failures that the hub allows is reached. The
attempt gets a new number. The command fails if no agent runs, or if there is nothing to retry.`,
		Example: "  system-agent retry && system-agent logs -f",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v, state, err := t.inspectSource(cmd.Context())
			if v != nil && v.notRunning != nil {
				return fmt.Errorf("retry needs a running agent: %w", v.notRunning)
			}
			if err != nil {
				return err
			}
			if err := v.client.Retry(cmd.Context(), state.Source); err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "Retrying plan %s from %s; follow it with: system-agent logs%s -f\n",
				plans.ShortChecksum(state.Checksum), state.Source, sourceOption(state.Source))
			return err
		},
	}
	t.flags(cmd)
	t.sourceFlag(cmd)
	return cmd
}
