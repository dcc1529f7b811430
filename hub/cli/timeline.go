package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/hub/util/timelines"
)

// timelineOptions are the flags of "hub timeline".
type timelineOptions struct {
	connection
	output  output
	machine string
	watch   bool
}

func newTimeline() *cobra.Command {
	o := &timelineOptions{}
	cmd := &cobra.Command{
		Use:   "timeline <namespace>/<cluster>",
		Short: "Show phases and durations of a cluster",
		Long: `Show the phases that a cluster, its machines and its operations went through, with times and outcomes, oldest first. The last phase
of each goes on; that of an operation says how it has ended.

A phase is named by what was waited for, and by the step of an operation. Its outcome is done, failed (somebody had to act, or it ended so),
gone (the machine went away), running or ready.`,
		Example: "  hub timeline fleet-default/demo\n  hub timeline fleet-default/demo --machine demo-workers-x2x4z --watch",
		Args:    oneCluster,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.output.check(); err != nil {
				return err
			}
			c, key, err := o.cluster(args[0])
			if err != nil {
				return err
			}
			if o.watch {
				return explain(o.follow(cmd.Context(), c, key, cmd.OutOrStdout(), cmd.ErrOrStderr()))
			}
			record, err := readTimeline(cmd.Context(), c, key)
			if err != nil {
				return explain(err)
			}
			if record = o.only(record); o.machine != "" && len(record.Subjects) == 0 {
				return fmt.Errorf("the timeline of cluster %s has no Machine %q; see \"hub status %[1]s\"", key, o.machine)
			}
			return o.output.print(cmd.OutOrStdout(), record, func(w io.Writer) error { return writeTimeline(w, record, time.Now()) })
		},
	}
	o.connection.addFlags(cmd.Flags())
	o.output.addFlags(cmd.Flags())
	cmd.Flags().StringVar(&o.machine, "machine", "", "show only this machine")
	cmd.Flags().BoolVarP(&o.watch, "watch", "w", false,
		"watch for changes and print a line for each new phase; with -o json print the whole timeline after each change")
	return cmd
}

func readTimeline(ctx context.Context, c client.Reader, cluster client.ObjectKey) (*timelines.Record, error) {
	collector, err := collectTimeline(ctx, c, cluster)
	if err != nil {
		return nil, err
	}
	return collector.Record(), nil
}

func collectTimeline(ctx context.Context, c client.Reader, cluster client.ObjectKey) (*timelines.Collector, error) {
	collector := timelines.NewCollector(cluster)
	err := collector.Read(ctx, c)
	if apierrors.IsNotFound(err) {
		return nil, noTimeline(ctx, c, cluster)
	}
	return collector, err
}

// only leaves out what was not asked for.
func (o *timelineOptions) only(record *timelines.Record) *timelines.Record {
	if o.machine == "" {
		return record
	}
	out := *record
	out.Subjects = slices.DeleteFunc(slices.Clone(record.Subjects),
		func(s timelines.Subject) bool { return s.Kind != timelines.KindMachine || s.Name != o.machine })
	return &out
}

// event is a phase with whose it is.
type event struct {
	who string
	timelines.Phase
}

func events(record *timelines.Record) []event {
	var out []event
	for _, s := range record.Subjects {
		who := "cluster"
		switch {
		case s.Kind == timelines.KindMachine:
			who = s.Name
		case s.IsOperation():
			who = s.Kind + "/" + s.Name
		}
		for _, p := range s.Phases {
			out = append(out, event{who, p})
		}
	}
	slices.SortStableFunc(out, func(a, b event) int { return cmp.Or(a.Start.Compare(b.Start.Time), cmp.Compare(a.who, b.who)) })
	return out
}

func writeTimeline(out io.Writer, record *timelines.Record, now time.Time) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "START\tTOOK\tWHO\tPHASE\tOUTCOME\tMESSAGE")
	for _, e := range events(record) {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\n",
			e.Start.UTC().Format(time.DateTime), took(e.Phase, now), printable(e.who), printable(e.Name), printable(string(e.Outcome)),
			printable(e.Message))
	}
	return table.Flush()
}

// took is how long a phase took, or takes already.
func took(p timelines.Phase, now time.Time) string {
	if p.End != nil {
		return (time.Duration(p.Seconds) * time.Second).String()
	}
	return timeBetween(p.Start.Time, now).String()
}

func oneLineOf(text string) string { return strings.Join(strings.Fields(text), " ") }
