package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/controller-runtime/pkg/client"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// snapshotPage is how many ETCDSnapshots are read at a time, as many as kubectl reads: each may hold the specification of its Cluster.
const snapshotPage = 500

// snapshotLine is a snapshot as it is listed.
type snapshotLine struct {
	Namespace    string       `json:"namespace"`
	Name         string       `json:"name"`
	Cluster      string       `json:"cluster"`
	File         string       `json:"file"`
	Node         string       `json:"node,omitempty"`
	Bucket       string       `json:"bucket,omitempty"`
	Folder       string       `json:"folder,omitempty"`
	Size         int64        `json:"size,omitempty"`
	Status       string       `json:"status,omitempty"`
	Message      string       `json:"message,omitempty"`
	Created      metav1.Time  `json:"created"`
	Missing      bool         `json:"missing,omitempty"`
	MissingSince *metav1.Time `json:"missingSince,omitempty"`
}

func newSnapshotList() *cobra.Command {
	return listed(&cobra.Command{
		Use:   "list [<namespace>/<cluster>]",
		Short: "List snapshots of etcd",
		Long: `List the snapshots of a cluster's etcd, of all clusters in a namespace or of all, the newest last: the ETCDSnapshots, which follow
what the clusters list. A snapshot is missing if its cluster no longer lists the file, or the node that has it is gone.`,
		Example: "  hub snapshot list fleet-default/demo",
	}, &scoped{}, listSnapshots, writeSnapshots)
}

// listSnapshots lists those of a cluster, of a namespace where of has no name, or all.
func listSnapshots(ctx context.Context, c client.Reader, of client.ObjectKey) ([]snapshotLine, error) {
	opts := []client.ListOption{client.InNamespace(of.Namespace), client.Limit(snapshotPage)}
	if of.Name != "" {
		opts = append(opts, client.MatchingLabels{rkev1.ClusterNameLabel: of.Name})
	}
	lines := []snapshotLine{}
	for next := ""; ; {
		var list rkev1.ETCDSnapshotList
		if err := c.List(ctx, &list, append(opts, client.Continue(next))...); err != nil {
			return nil, fmt.Errorf("listing ETCDSnapshots: %w", err)
		}
		for i := range list.Items {
			lines = append(lines, snapshotLineOf(&list.Items[i]))
		}
		if next = list.Continue; next == "" {
			break
		}
	}
	slices.SortFunc(lines, func(a, b snapshotLine) int {
		return cmp.Or(a.Created.Compare(b.Created.Time), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return lines, nil
}

func snapshotLineOf(s *rkev1.ETCDSnapshot) snapshotLine {
	file := &s.SnapshotFile
	line := snapshotLine{
		Namespace: s.Namespace, Name: s.Name, Cluster: cmp.Or(s.Spec.ClusterName, s.Labels[rkev1.ClusterNameLabel]), File: file.Name,
		Node: file.NodeName, Size: file.Size, Status: file.Status, Message: file.Message, Created: s.CreationTimestamp,
		Missing: s.Status.Missing, MissingSince: s.Status.MissingSince,
	}
	if file.CreatedAt != nil {
		line.Created = *file.CreatedAt
	}
	if file.S3 != nil {
		line.Bucket, line.Folder = file.S3.Bucket, file.S3.Folder
	}
	return line
}

func writeSnapshots(out io.Writer, lines []snapshotLine, now time.Time) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "SNAPSHOT\tCLUSTER\tLOCATION\tSIZE\tAGE\tSTATUS")
	for _, l := range lines {
		fmt.Fprintf(table, "%s/%s\t%s\t%s\t%s\t%s\t%s\n", l.Namespace, l.Name, printable(l.Cluster), printable(l.location()), bytesText(l.Size),
			duration.HumanDuration(now.Sub(l.Created.Time)), printable(l.state(now)))
	}
	return table.Flush()
}

// location is the bucket, or the node that has the file.
func (l snapshotLine) location() string {
	if l.Bucket == "" {
		return "node " + l.Node
	}
	return "s3://" + joined(l.Bucket, "/", l.Folder)
}

// state is what a user must know before a restore.
func (l snapshotLine) state(now time.Time) string {
	state := joined(l.Status, ": ", l.Message)
	if !l.Missing {
		return state
	}
	missing := "missing"
	if l.MissingSince != nil {
		missing += " for " + duration.HumanDuration(now.Sub(l.MissingSince.Time))
	}
	return joined(missing, ", ", state)
}
