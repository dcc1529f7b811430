package render

import (
	_ "embed"
	"time"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/plan/operation"
	"github.com/drover-dev/drover/plans"
)

// deleteSnapshotSh is handed to sh with the instruction, as encryptionKeysSh is.
//
//go:embed scripts/delete-snapshot.sh
var deleteSnapshotSh string

// deleteSnapshot needs no credential among its arguments: those of the bucket are in the configuration file. Bucket and folder are those of
// that file, too, whatever the ETCDSnapshot says, so that it deletes nothing that is not listed as a snapshot of the cluster.
func (t *taskBuilder) deleteSnapshot() plans.Instruction {
	file := operationv1.DeletedSnapshot{}
	if op, is := t.op.(*operationv1.ETCDSnapshotDelete); is && op.Status.Snapshot != nil {
		file = *op.Status.Snapshot
	}
	i := t.script(string(operation.TaskDeleteSnapshot), deleteSnapshotSh, string(t.Cluster.Release.Runtime), file.Name, file.Location,
		t.stateDir()+"/empty")
	i.Env = append(i.Env, t.snapshotServer()...)
	i.TimeoutSeconds = int((operation.DeleteTimeout - scriptMargin) / time.Second)
	return i
}

// SnapshotBucket is where in S3 a machine with etcd copies its snapshots: endpoint, bucket and folder. The bucket is empty for nowhere.
func SnapshotBucket(c Cluster, m Machine) rkev1.ETCDSnapshotS3 {
	b := builder{Inputs: Inputs{Cluster: c, Machine: m}}
	b.mergeArgs()
	b.addEtcdArgs()
	if used, _ := b.args["etcd-s3"].(bool); !used {
		return rkev1.ETCDSnapshotS3{}
	}
	return rkev1.ETCDSnapshotS3{Endpoint: b.args.text("etcd-s3-endpoint"), Bucket: b.args.text("etcd-s3-bucket"),
		Folder: b.args.text("etcd-s3-folder")}
}
