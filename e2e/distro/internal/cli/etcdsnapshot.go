package cli

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/drover-dev/drover/e2e/distro/internal/snapshot"
)

// snapshotTimeout is how long the server may take for an operation.
const snapshotTimeout = 6 * time.Minute

type snapshotFlags struct {
	remote
	name, dir string
	compress  bool
	retention int
}

func etcdSnapshot() *cobra.Command {
	f := &snapshotFlags{}
	c := &cobra.Command{Use: "etcd-snapshot", Short: "Manage snapshots of etcd"}
	f.remote.add(c, "etcd-server", "etcd-token")
	flags := c.PersistentFlags()
	flags.String("node-name", "", "Accepted for compatibility")
	flags.StringVar(&f.name, "name", "on-demand", "Beginning of the names of snapshots")
	for _, name := range []string{"etcd-snapshot-dir", "dir"} {
		flags.StringVar(&f.dir, name, "", "Folder of the snapshots (default: <data-dir>/server/db/snapshots)")
	}
	for _, name := range []string{"etcd-snapshot-compress", "snapshot-compress"} {
		flags.BoolVar(&f.compress, name, false, "Compress the snapshot")
	}
	addS3(c)
	list := &cobra.Command{Use: "ls", Aliases: []string{"list", "l"}, Short: "List snapshots", Args: cobra.NoArgs}
	format := list.Flags().StringP("output", "o", "", "table, json or yaml")
	list.RunE = func(c *cobra.Command, _ []string) error { return f.list(c, *format) }
	prune := &cobra.Command{Use: "prune", Short: "Delete the oldest snapshots", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return f.change(c, snapshot.OperationPrune, f.name) }}
	for _, name := range []string{"etcd-snapshot-retention", "snapshot-retention"} {
		prune.Flags().IntVar(&f.retention, name, 5, "Number of snapshots to keep")
	}
	c.AddCommand(list, prune,
		&cobra.Command{Use: "save", Short: "Take a snapshot now", Args: cobra.NoArgs,
			RunE: func(c *cobra.Command, _ []string) error { return f.change(c, snapshot.OperationSave, f.name) }},
		&cobra.Command{Use: "delete", Short: "Delete snapshots",
			RunE: func(c *cobra.Command, args []string) error {
				if len(args) == 0 {
					return errors.New("no snapshots given for removal")
				}
				return f.change(c, snapshot.OperationDelete, args...)
			}})
	return c
}

// changed reports whether one of a flag's names was given.
func changed(c *cobra.Command, names ...string) bool {
	for _, name := range names {
		if c.Flags().Changed(name) {
			return true
		}
	}
	return false
}

func (f *snapshotFlags) call(c *cobra.Command, operation string, names []string, into any) error {
	call := snapshot.Call{Operation: operation, Name: names}
	if changed(c, "etcd-snapshot-dir", "dir") {
		call.Dir = &f.dir
	}
	if changed(c, "etcd-snapshot-compress", "snapshot-compress") {
		call.Compress = &f.compress
	}
	switch {
	case operation == snapshot.OperationSave:
		call.Retention = new(int) // only the schedule and prune delete old ones
	case changed(c, "etcd-snapshot-retention", "snapshot-retention"):
		call.Retention = &f.retention
	}
	timeout := snapshotTimeout
	bucket, err := s3Settings(c, operation)
	if err != nil {
		return err
	}
	if bucket != nil {
		call.S3 = bucket
		timeout += bucket.Timeout.Duration
	}
	server, err := f.dial(c.Context(), timeout)
	if err != nil {
		return err
	}
	return server.Call(c.Context(), http.MethodPost, snapshot.Path, call, into)
}

func (f *snapshotFlags) change(c *cobra.Command, operation string, names ...string) error {
	var result snapshot.Result
	if err := f.call(c, operation, names, &result); err != nil {
		return err
	}
	for _, name := range result.Created {
		logger().Info("Snapshot " + name + " saved.")
	}
	for _, name := range result.Deleted {
		logger().Info("Snapshot " + name + " deleted.")
	}
	for _, name := range names {
		if operation == snapshot.OperationDelete && !slices.Contains(result.Deleted, name) {
			logger().Warn("Snapshot " + name + " not found.")
		}
	}
	return nil
}

func (f *snapshotFlags) list(c *cobra.Command, format string) error {
	var list snapshot.List
	if format != "" && format != "table" && format != "json" && format != "yaml" {
		return fmt.Errorf("invalid output format: %s", format)
	}
	if err := f.call(c, snapshot.OperationList, nil, &list); err != nil {
		return err
	}
	slices.SortFunc(list.Items, func(a, b snapshot.Object) int {
		return cmp.Or(a.Status.CreationTime.Compare(b.Status.CreationTime.Time), cmp.Compare(a.Spec.SnapshotName, b.Spec.SnapshotName),
			cmp.Compare(a.Spec.Location, b.Spec.Location))
	})
	return printSnapshots(os.Stdout, list, format)
}

func printSnapshots(to io.Writer, list snapshot.List, format string) error {
	switch format {
	case "json":
		return json.NewEncoder(to).Encode(list)
	case "yaml":
		raw, err := yaml.Marshal(list)
		if err == nil {
			_, err = to.Write(raw)
		}
		return err
	}
	w := tabwriter.NewWriter(to, 0, 0, 1, ' ', 0)
	fmt.Fprint(w, "Name\tLocation\tSize\tCreated\n")
	for _, s := range list.Items {
		fmt.Fprintf(w, "%s\t%s\t%d\t%s\n", s.Spec.SnapshotName, s.Spec.Location, s.Status.Size.Value(),
			s.Status.CreationTime.Format(time.RFC3339))
	}
	return w.Flush()
}
