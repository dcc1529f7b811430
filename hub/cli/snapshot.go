package cli

import (
	"github.com/spf13/cobra"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
)

func newSnapshot() *cobra.Command {
	return group(&cobra.Command{
		Use:   "snapshot",
		Short: "Manage snapshots of etcd",
		Long: `Save, list, restore and delete snapshots of a cluster's etcd. spec.rkeConfig.etcd of the Cluster says when snapshots are taken
without a command, how many are kept, and in which bucket.`,
	}, newSnapshotCreate(), newSnapshotList(), newSnapshotRestore(), newSnapshotDelete())
}

func newSnapshotCreate() *cobra.Command {
	save := &operationv1.ETCDSnapshotSave{}
	cmd := operationCommand(&cobra.Command{
		Use:   "create <namespace>/<cluster>",
		Short: "Save a snapshot of etcd",
		Long: `Save a snapshot of a cluster's etcd, on all machines with etcd or on one. It creates an ETCDSnapshotSave, which is kept for --ttl
after its end. Without --wait the command ends when that is created.

The files are named <name>-<node>-<time>. Where the Cluster has a bucket, they are uploaded to it too.`,
		Example: "  hub snapshot create fleet-default/demo --wait\n" +
			"  hub snapshot create fleet-default/demo --name before-the-upgrade --machine demo-m1",
	}, func() operationv1.Operation { return save })
	cmd.Flags().StringVar(&save.Spec.MachineName, "machine", "", "Machine to save the snapshot on (default: all with the role etcd)")
	cmd.Flags().StringVar(&save.Spec.Args.Name, "name", "", "how the name of the file begins (default: on-demand)")
	cmd.Flags().BoolVar(&save.Spec.Args.Compress, "compress", false, "compress the file")
	return cmd
}
