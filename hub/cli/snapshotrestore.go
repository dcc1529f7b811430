package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/util/objects"
)

func newSnapshotRestore() *cobra.Command {
	var o operationOptions
	var yes bool
	cmd := &cobra.Command{
		Use:   "restore <namespace>/<snapshot>",
		Short: "Restore a cluster from a snapshot",
		Long: `Restore a cluster from a snapshot of its etcd, as "hub snapshot list" names it. What was written since the snapshot is lost, and
the cluster stops meanwhile. On a terminal it asks before. It creates an ETCDSnapshotRestore, which is kept for --ttl after its end.

The version and configuration of the Cluster stay as they are. spec.rkeConfig.etcdSnapshotRestore of the Cluster restores them too.`,
		Example: "  hub snapshot restore fleet-default/demo-on-demand-demo-m1-1793541600 --wait",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return errors.New("snapshot restore needs one argument: <namespace>/<snapshot>; see \"hub snapshot list\"")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check(); err != nil {
				return err
			}
			key, err := o.key(args[0], "snapshot")
			if err != nil {
				return err
			}
			c, err := o.client()
			if err != nil {
				return err
			}
			line, err := restorable(cmd.Context(), c, key)
			if err != nil {
				return explain(err)
			}
			if warning := failedUpload(cmd.Context(), c, line, time.Now()); warning != "" {
				fmt.Fprintln(cmd.ErrOrStderr(), warning)
			}
			if !yes && onTerminal(cmd.InOrStdin()) {
				in := interruptible(cmd.Context(), cmd.InOrStdin())
				confirmed, err := confirmRestore(in, cmd.ErrOrStderr(), key.Namespace, line, time.Now())
				if err != nil {
					return err
				}
				if !confirmed {
					return errors.New("nothing was restored: the answer was not \"yes\"")
				}
			}
			if o.output.form == "table" {
				_, err := fmt.Fprintf(cmd.OutOrStdout(), "Restoring Cluster %s/%s from %s (%s, %s old)\n", key.Namespace, printable(line.Cluster),
					printable(line.File), printable(line.location()), duration.HumanDuration(time.Since(line.Created.Time)))
				if err != nil {
					return err
				}
			}
			op := &operationv1.ETCDSnapshotRestore{}
			op.Spec.Args.Name = key.Name
			return o.runFor(cmd, c, client.ObjectKey{Namespace: key.Namespace, Name: line.Cluster}, op)
		},
	}
	o.addFlags(cmd.Flags())
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask for confirmation")
	return cmd
}

// failedUpload is a warning of a restore from a bucket in which the cluster could not save its last snapshot: the bucket is read with the
// same endpoint and keys. It is empty for none, and for users who may not list ETCDSnapshots.
func failedUpload(ctx context.Context, c client.Reader, line snapshotLine, now time.Time) string {
	if line.Bucket == "" {
		return ""
	}
	lines, err := listSnapshots(ctx, c, client.ObjectKey{Namespace: line.Namespace, Name: line.Cluster})
	if err != nil {
		return ""
	}
	for _, last := range slices.Backward(lines) {
		if last.Bucket != line.Bucket {
			continue
		}
		if last.Status != "failed" {
			return ""
		}
		return fmt.Sprintf("Warning: the last snapshot in %s failed %s ago: %s\n"+
			"The restore reads the bucket with the same endpoint and keys. Check them first",
			printable(last.location()), duration.HumanDuration(now.Sub(last.Created.Time)), cmp.Or(printable(last.Message), "no message"))
	}
	return ""
}

// confirmRestore asks on out whether to go on; true only for the answer "yes".
func confirmRestore(in io.Reader, out io.Writer, namespace string, line snapshotLine, now time.Time) (bool, error) {
	fmt.Fprintf(out, "This stops Cluster %s/%s, and what was written since %s (%s ago) is lost:\n  %s (%s, %s)\n", namespace,
		printable(line.Cluster), line.Created.UTC().Format(time.RFC3339), duration.HumanDuration(now.Sub(line.Created.Time)),
		printable(line.File), printable(line.location()), bytesText(line.Size))
	return askForYes(in, out)
}

// onTerminal reports whether there is somebody to ask.
func onTerminal(in io.Reader) bool {
	file, ok := in.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// restorable reads a snapshot and returns why it cannot be restored. One that is missing may be there again; the hub looks before it stops
// anything.
func restorable(ctx context.Context, c client.Reader, key client.ObjectKey) (snapshotLine, error) {
	snapshot := &rkev1.ETCDSnapshot{}
	found, err := objects.Get(ctx, c, key, snapshot)
	if err != nil {
		return snapshotLine{}, err
	}
	line := snapshotLineOf(snapshot)
	switch {
	case !found:
		return line, fmt.Errorf("there is no ETCDSnapshot %s; see \"hub snapshot list\"", key)
	case line.Cluster == "":
		return line, fmt.Errorf("ETCDSnapshot %s names no Cluster: set spec.clusterName", key)
	case line.Status == "failed":
		return line, fmt.Errorf("ETCDSnapshot %s has no snapshot: it failed: %s", key, cmp.Or(printable(line.Message), "no message"))
	}
	return line, nil
}
