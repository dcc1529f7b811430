package cli

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/util/objects"
)

func newSnapshotDelete() *cobra.Command {
	var o operationOptions
	var yes bool
	cmd := &cobra.Command{
		Use:   "delete <namespace>/<cluster> <snapshot>...",
		Short: "Delete snapshots of etcd",
		Long: `Delete snapshots of a cluster's etcd, as "hub snapshot list" names them: their files, on a machine or in S3, and their
ETCDSnapshots. A snapshot and its copy in S3 are two, and each is deleted alone. It creates an ETCDSnapshotDelete for each, which is kept
for --ttl after its end. Nothing restarts.

A file whose node is gone cannot be reached; then only its ETCDSnapshot is deleted. A snapshot that is to be restored is refused.`,
		Example: "  hub snapshot delete fleet-default/demo demo-local-nightly-m1-1a2b3c --wait\n" +
			"  hub snapshot delete fleet-default/demo demo-local-nightly-m1-1a2b3c demo-s3-nightly-m1-4d5e6f --yes",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) < 2 {
				return errors.New("snapshot delete needs a cluster and its snapshots: <namespace>/<cluster> <snapshot>...; " +
					"see \"hub snapshot list\"")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check(); err != nil {
				return err
			}
			cluster, err := o.key(args[0], "cluster")
			if err != nil {
				return err
			}
			names, err := snapshotsOf(cluster, args[1:])
			if err != nil {
				return err
			}
			c, err := o.client()
			if err != nil {
				return err
			}
			lines, err := deletable(cmd.Context(), c, cluster, names)
			if err != nil {
				return explain(err)
			}
			if !yes {
				in := interruptible(cmd.Context(), cmd.InOrStdin())
				confirmed, err := confirmDeletion(in, cmd.ErrOrStderr(), cluster, lines, time.Now())
				if err != nil {
					return err
				}
				if !confirmed {
					return errors.New("nothing was deleted: the answer was not \"yes\"; a script passes --yes")
				}
			}
			return o.runFor(cmd, c, cluster, deletions(names)...)
		},
	}
	o.addFlags(cmd.Flags())
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask for confirmation")
	return cmd
}

// snapshotsOf reads the names of a cluster's snapshots, each once. They are in the namespace of the cluster, and may be written with it.
func snapshotsOf(cluster client.ObjectKey, arguments []string) (names []string, _ error) {
	for _, argument := range arguments {
		namespace, name, qualified := strings.Cut(argument, "/")
		if !qualified {
			namespace, name = cluster.Namespace, argument
		}
		switch {
		case name == "" || strings.Contains(name, "/"):
			return nil, fmt.Errorf("%q is not <snapshot>, nor <namespace>/<snapshot>", argument)
		case namespace != cluster.Namespace:
			return nil, fmt.Errorf("%q is not in the namespace of the cluster, %s", argument, cluster.Namespace)
		case !slices.Contains(names, name):
			names = append(names, name)
		}
	}
	return names, nil
}

// deletable reads the snapshots of a cluster, and returns why one of them cannot be deleted. The hub checks it again.
func deletable(ctx context.Context, c client.Reader, cluster client.ObjectKey, names []string) (lines []snapshotLine, _ error) {
	var errs []error
	for _, name := range names {
		snapshot, key := &rkev1.ETCDSnapshot{}, client.ObjectKey{Namespace: cluster.Namespace, Name: name}
		found, err := objects.Get(ctx, c, key, snapshot)
		if err != nil {
			return nil, err
		}
		switch line := snapshotLineOf(snapshot); {
		case !found:
			errs = append(errs, fmt.Errorf("there is no ETCDSnapshot %s; see \"hub snapshot list %s\"", key, cluster))
		case line.Cluster != cluster.Name:
			errs = append(errs, fmt.Errorf("ETCDSnapshot %s is of the Cluster %q, not of %s", key, printable(line.Cluster), cluster.Name))
		case line.Status == "failed" && !line.Missing:
			errs = append(errs, fmt.Errorf("ETCDSnapshot %s has no file to delete: it failed: %s", key,
				cmp.Or(printable(line.Message), "no message")))
		default:
			lines = append(lines, line)
		}
	}
	return lines, errors.Join(errs...)
}

// confirmDeletion asks on out whether to go on; true only for the answer "yes".
func confirmDeletion(in io.Reader, out io.Writer, cluster client.ObjectKey, lines []snapshotLine, now time.Time) (bool, error) {
	fmt.Fprintf(out, "This deletes snapshots of Cluster %s for good:\n", cluster)
	for _, l := range lines {
		missing := ""
		if l.Missing {
			missing = ", missing"
		}
		fmt.Fprintf(out, "  %s (%s, %s, %s old%s)\n", l.Name, printable(l.location()), bytesText(l.Size),
			duration.HumanDuration(now.Sub(l.Created.Time)), missing)
	}
	return askForYes(in, out)
}

func askForYes(in io.Reader, out io.Writer) (bool, error) {
	fmt.Fprint(out, "Type yes to continue: ")
	answer, err := bufio.NewReader(in).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return false, fmt.Errorf("reading the answer: %w", err)
	}
	return strings.TrimSpace(answer) == "yes", nil
}

func deletions(names []string) (ops []operationv1.Operation) {
	for _, name := range names {
		op := &operationv1.ETCDSnapshotDelete{}
		op.Spec.Args.Name = name
		ops = append(ops, op)
	}
	return ops
}
