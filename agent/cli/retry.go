package cli

import (
	"fmt"

	"github.com/spf13/cobra"
)

func newRetry() *cobra.Command {
	var where place
	var source string
	cmd := &cobra.Command{
		Use:   "retry",
		Short: "Try a failed plan again now",
		Long: `Try a failed plan again now, without waiting for the pause between two tries, and also when all tries that the hub allows are used
up. The attempt gets a new number. It fails when no agent runs, or when there is nothing to try again.`,
		Example: "  system-agent retry && system-agent logs -f",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v, err := where.look(cmd.Context())
			if err != nil {
				return err
			}
			if v.Down != nil {
				return fmt.Errorf("only a running agent can try again: %w", v.Down)
			}
			state, err := v.source(source)
			if err != nil {
				return err
			}
			if err := v.client.Retry(cmd.Context(), state.Source); err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "The agent tries the plan %s of %s again; system-agent logs -f shows how.\n", shortSum(state.Checksum), state.Source)
			return err
		},
	}
	where.flags(cmd)
	cmd.Flags().StringVar(&source, "source", "", "source of the plan: hub, or the name of a local plan (default: hub, or the only one)")
	return cmd
}
