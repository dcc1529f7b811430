package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/agent/engine/journal"
	"github.com/drover-dev/drover/plans"
)

func newHistory() *cobra.Command {
	var t target
	var out format
	limit := 20
	cmd := &cobra.Command{
		Use:   "history",
		Short: "List attempts to apply plans",
		Long:  "List attempts to apply plans, newest last.",
		Example: "  system-agent history\n  system-agent history --limit 0 -o json | jq '.[] | select(.succeeded | not)'\n" +
			"  system-agent logs --attempt 3",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v, err := t.inspect(cmd.Context())
			if err != nil {
				return err
			}
			attempts, err := v.allHistory(cmd.Context(), t.source)
			if err != nil {
				return err
			}
			if limit > 0 {
				attempts = attempts[max(len(attempts)-limit, 0):]
			}
			return out.print(cmd.OutOrStdout(), attempts, func(w io.Writer) { writeHistory(w, attempts, time.Now()) })
		},
	}
	t.flags(cmd)
	out.flags(cmd)
	cmd.Flags().StringVar(&t.source, "source", "", "only attempts of this plan source: hub or local/<name>")
	cmd.Flags().IntVar(&limit, "limit", limit, "maximum number of attempts, 0 for all")
	return cmd
}

// allHistory merges the attempts of all sources, or of the named one, oldest first.
func (v *view) allHistory(ctx context.Context, source string) ([]journal.Attempt, error) {
	attempts := []journal.Attempt{}
	if source != "" {
		if _, err := v.source(source); err != nil {
			return nil, err
		}
	}
	for _, state := range v.status.Sources {
		if source != "" && state.Source != source {
			continue
		}
		some, err := v.history(ctx, state)
		if err != nil {
			return nil, err
		}
		attempts = append(attempts, some...)
	}
	slices.SortStableFunc(attempts, func(a, b journal.Attempt) int { return a.Started.Compare(b.Started) })
	return attempts, nil
}

func writeHistory(w io.Writer, attempts []journal.Attempt, now time.Time) {
	if len(attempts) == 0 {
		fmt.Fprintln(w, "No attempts yet.")
		return
	}
	table := newTable(w)
	fmt.Fprintln(table, "STARTED\tSOURCE\tPLAN\tREVISION\tATTEMPT\tTRY\tRESULT\tTOOK\tSTEPS\tMESSAGE")
	for _, a := range attempts {
		result, end := "running", now
		if !a.Ended.IsZero() {
			result, end = "FAILED", a.Ended
			if a.Succeeded {
				result = "succeeded"
			}
			if a.RolledBack {
				result += ", rolled back"
			}
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%d\t%d\t%d\t%s\t%s\t%d\t%s\n", a.Started.In(now.Location()).Format(time.DateTime), a.Source,
			plans.ShortChecksum(a.Checksum), a.Revision, a.Number, a.Try, result, age(a.Started, end), len(a.Instructions), firstLine(a.Message))
	}
	_ = table.Flush()
}
