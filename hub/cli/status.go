package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/hub/server/settings"
	"github.com/drover-dev/drover/hub/util/timelines"
)

// statusLine is what something waits for at the moment.
type statusLine struct {
	Kind  string   `json:"kind"`
	Name  string   `json:"name"`
	Pool  string   `json:"pool,omitempty"`
	Roles []string `json:"roles,omitempty"`
	timelines.Phase
}

func newStatus() *cobra.Command {
	var where connection
	var out output
	var systemNamespace string
	cmd := &cobra.Command{
		Use:   "status <namespace>/<cluster>",
		Short: "Show what a cluster waits for",
		Args:  oneCluster,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := out.check(); err != nil {
				return err
			}
			c, key, err := where.cluster(args[0])
			if err != nil {
				return err
			}
			record, err := readTimeline(cmd.Context(), c, key)
			if err != nil && !errors.As(err, new(noTimelineError)) {
				return explain(err)
			}
			absent := absentHub(cmd.Context(), c, systemNamespace, time.Now())
			if err != nil {
				return errors.New(joined(err.Error(), "; ", absent))
			}
			if absent != "" {
				fmt.Fprintf(cmd.ErrOrStderr(), "Warning: %s. What follows is what it knew then.\n", absent)
			}
			lines := statusOf(record)
			return out.print(cmd.OutOrStdout(), lines, func(w io.Writer) error { return writeStatus(w, key.Namespace, lines, time.Now()) })
		},
	}
	where.addFlags(cmd.Flags())
	out.addFlags(cmd.Flags())
	cmd.Flags().StringVar(&systemNamespace, "system-namespace", settings.DefaultSystemNamespace, "the hub's --system-namespace")
	return cmd
}

// statusOf is the cluster, then its operations, and then its machines by pool and name.
func statusOf(record *timelines.Record) []statusLine {
	lines := []statusLine{}
	for i := range record.Subjects {
		s := &record.Subjects[i]
		if phase, there := s.Present(); there {
			lines = append(lines, statusLine{s.Kind, s.Name, s.Pool, s.Roles, phase})
		}
	}
	slices.SortStableFunc(lines, func(a, b statusLine) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Pool, b.Pool), cmp.Compare(a.Name, b.Name))
	})
	return lines
}

func rank(l statusLine) int {
	switch l.Kind {
	case timelines.KindCluster:
		return 0
	case timelines.KindMachine:
		return 2
	}
	return 1
}

// writeStatus writes a tree: the cluster, its operations, its pools, their machines.
func writeStatus(out io.Writer, namespace string, lines []statusLine, now time.Time) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "NAME\tROLES\tPHASE\tFOR\tMESSAGE")
	for i, l := range lines {
		l.Name = printable(l.Name)
		name, last := namespace+"/"+l.Name, i == len(lines)-1
		switch rank(l) {
		case 1:
			name = branch(last) + printable(l.Kind) + "/" + l.Name
		case 2:
			if l.Pool == "" {
				name = branch(last) + l.Name
			} else {
				if i == 0 || lines[i-1].Pool != l.Pool {
					lastPool := lines[len(lines)-1].Pool == l.Pool
					fmt.Fprintf(table, "%spool %s\t\t\t\t\n", branch(lastPool), printable(l.Pool))
				}
				name = stem(lines, l.Pool) + branch(last || lines[i+1].Pool != l.Pool) + l.Name
			}
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", name, printable(strings.Join(l.Roles, ",")), printable(l.Phase.Name), took(l.Phase, now),
			printable(l.Message))
	}
	return table.Flush()
}

func branch(last bool) string {
	if last {
		return "└─ "
	}
	return "├─ "
}

// stem leads past the machines of a pool to the next one.
func stem(lines []statusLine, pool string) string {
	if lines[len(lines)-1].Pool == pool {
		return "   "
	}
	return "│  "
}
