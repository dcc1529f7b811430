package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/agent/engine"
)

func newHistory() *cobra.Command {
	var where place
	var out format
	var source string
	limit := 20
	cmd := &cobra.Command{
		Use:   "history",
		Short: "List the attempts at plans",
		Long:  "List the attempts at plans, the newest last.",
		Example: "  system-agent history\n  system-agent history --limit 0 -o json | jq '.[] | select(.succeeded | not)'\n" +
			"  system-agent logs --attempt 3",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v, err := where.look(cmd.Context())
			if err != nil {
				return err
			}
			attempts, err := v.allHistory(cmd.Context(), source)
			if err != nil {
				return err
			}
			if limit > 0 {
				attempts = attempts[max(len(attempts)-limit, 0):]
			}
			return out.print(cmd.OutOrStdout(), attempts, func(w io.Writer) { writeHistory(w, attempts, time.Now()) })
		},
	}
	where.flags(cmd)
	out.flags(cmd)
	cmd.Flags().StringVar(&source, "source", "", "only attempts of this source: hub, or the name of a local plan")
	cmd.Flags().IntVar(&limit, "limit", limit, "how many at most, 0 for all")
	return cmd
}

// allHistory merges the attempts of all sources, the oldest first.
func (v *view) allHistory(ctx context.Context, source string) ([]engine.Attempt, error) {
	attempts := []engine.Attempt{}
	if source != "" {
		if _, err := v.source(source); err != nil {
			return nil, err
		}
	}
	for _, state := range v.Status.Sources {
		if source != "" && state.Source != source {
			continue
		}
		some, err := v.history(ctx, state)
		if err != nil {
			return nil, err
		}
		attempts = append(attempts, some...)
	}
	slices.SortStableFunc(attempts, func(a, b engine.Attempt) int { return a.Started.Compare(b.Started) })
	return attempts, nil
}

func writeHistory(w io.Writer, attempts []engine.Attempt, now time.Time) {
	if len(attempts) == 0 {
		fmt.Fprintln(w, "No plan has been tried on this machine yet.")
		return
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "STARTED\tSOURCE\tPLAN\tREVISION\tATTEMPT\tTRY\tRESULT\tTOOK\tSTEPS\tMESSAGE")
	for _, a := range attempts {
		result, took := "going on", now.Sub(a.Started)
		if !a.Ended.IsZero() {
			result, took = "FAILED", a.Ended.Sub(a.Started)
			if a.Succeeded {
				result = "succeeded"
			}
			if a.RolledBack {
				result += ", rolled back"
			}
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%d\t%d\t%d\t%s\t%s\t%d\t%s\n", a.Started.In(now.Location()).Format(time.DateTime), a.Source, shortSum(a.Checksum),
			a.Revision, a.Number, a.Try, result, span(took), len(a.Instructions), firstLine(a.Message))
	}
	_ = table.Flush()
}
