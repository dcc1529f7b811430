package rkecontrolplane

import (
	"context"
	"fmt"
	"path"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/hub/access/clusternodes"
	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/plan/operation"
	"github.com/drover-dev/drover/hub/plan/render"
	"github.com/drover-dev/drover/hub/plan/rollout"
	"github.com/drover-dev/drover/hub/util/clusterspec"
	"github.com/drover-dev/drover/hub/util/message"
	"github.com/drover-dev/drover/hub/util/objects"
)

// readSnapshot reads the ETCDSnapshot of a restore that has not begun, past the cache, which does not hold its metadata. From then on the
// operation's status says what is restored.
func (r *Reconciler) readSnapshot(ctx context.Context, s *scope, in *operation.Inputs) error {
	op, is := s.operation.(*operationv1.ETCDSnapshotRestore)
	if !is || op.Status.Phase != "" && op.Status.Phase != operationv1.PhasePending {
		return nil
	}
	if len(validation.IsDNS1123Subdomain(op.Spec.Args.Name)) > 0 {
		in.Snapshot = operation.Snapshot{Problem: fmt.Sprintf("spec.args.name is %q, which is no name of an ETCDSnapshot", op.Spec.Args.Name)}
		return nil
	}
	snapshot := &rkev1.ETCDSnapshot{}
	found, err := objects.Get(ctx, r.Live, s.key(op.Spec.Args.Name), snapshot)
	if err != nil {
		return err
	}
	in.Snapshot = operation.Snapshot{Problem: fmt.Sprintf("ETCDSnapshot %s does not exist", op.Spec.Args.Name)}
	if found {
		in.Snapshot = s.snapshot(snapshot)
	}
	return nil
}

// snapshot is what an ETCDSnapshot says. Users may create ETCDSnapshots.
func (s *scope) snapshot(from *rkev1.ETCDSnapshot) operation.Snapshot {
	file := from.SnapshotFile
	out := operation.Snapshot{Wanted: s.controlPlane.Spec.DesiredVersion(),
		File: operationv1.RestoredSnapshot{Name: file.Name, Size: file.Size, CreatedAt: file.CreatedAt}}
	if spec, err := clusterspec.FromSnapshot(file.Metadata); err == nil && spec != nil {
		out.Version = spec.KubernetesVersion
	}
	if s3 := file.S3; s3 != nil {
		out.File.S3 = &operationv1.RestoredSnapshotS3{Bucket: s3.Bucket, Folder: s3.Folder, Region: s3.Region}
	} else {
		out.File.SHA256 = from.Annotations[rkev1.SnapshotSHA256Annotation]
		out.File.Path, out.Machine = strings.TrimPrefix(file.Location, "file://"), s.machineOf(from)
	}
	if since := from.Status.MissingSince; since != nil {
		out.MissingSince = since.Time
	}
	name := "ETCDSnapshot " + from.Name
	configured, known := s.configuredBucket()
	if s3 := file.S3; s3 != nil && s3.Folder == "" && configured.Folder != "" && file.Location == "s3://"+path.Join(s3.Bucket, file.Name) {
		out.File.S3.Folder = operationv1.BucketRoot // the cluster had no folder then
	}
	switch {
	case from.Spec.ClusterName != s.cluster.Name:
		out.Problem = fmt.Sprintf("%s is of the Cluster %q, not of %s", name, from.Spec.ClusterName, s.cluster.Name)
	case file.Status == "failed":
		out.Problem = name + " is of a snapshot that could not be saved"
	case s.unknownToken(from):
		out.Problem = fmt.Sprintf("%s was saved with a server token that Secret %s does not have, so that its data cannot be read: it is of "+
			"another cluster that uses the same folder of the bucket, or the token was deleted from the Secret", name, s.tokenSecret.Name)
	case !fileName.MatchString(file.Name):
		out.Problem = name + " has no valid snapshotFile.name"
	case file.S3 == nil && (!filePath.MatchString(out.File.Path) || strings.Contains(out.File.Path+"/", "/../")):
		out.Problem = name + " has no snapshotFile.location that is the path of a file, such as file:///var/lib/rancher/k3s/server/db/snapshots/a"
	case file.S3 == nil && !checksum.MatchString(out.File.SHA256):
		out.Problem = name + " has an annotation " + rkev1.SnapshotSHA256Annotation + " that is not the SHA-256 of a file: correct or remove it"
	case file.S3 == nil:
	case !bucketName.MatchString(file.S3.Bucket) || !folderName.MatchString(file.S3.Folder) || !bucketName.MatchString(file.S3.Region):
		out.Problem = name + " has no valid bucket, folder or region in snapshotFile.s3"
	case known && configured.Bucket == "":
		out.Unconfigured = name + " is in S3, and the Cluster has no bucket: set spec.rkeConfig.etcd.s3, with the credentials of the bucket"
	case known && configured.Endpoint != "" && file.S3.Endpoint != "" && configured.Endpoint != file.S3.Endpoint:
		out.Unconfigured = fmt.Sprintf("%s is at the endpoint %q, and the Cluster uses %q: correct the endpoint in spec.rkeConfig.etcd.s3, "+
			"or, %s", name, file.S3.Endpoint, configured.Endpoint, bucketMoved)
	}
	return out
}

// bucketMoved is what to do about a snapshot at another endpoint than that of the Cluster. RKE2 and k3s keep the endpoint with which they
// have listed it first, whatever they are configured with later.
const bucketMoved = "if the bucket has moved there, delete the ETCDSnapshotFiles of S3 in the cluster, which lists them again with the " +
	"next snapshot"

// What may be an argument of a command on a machine. Each is a single one, which no shell interprets.
var (
	fileName   = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:@+-]*$`)
	filePath   = regexp.MustCompile(`^/[A-Za-z0-9._:@+/-]*[A-Za-z0-9._:@+-]$`)
	bucketName = regexp.MustCompile(`^[A-Za-z0-9._-]*$`)
	checksum   = regexp.MustCompile(`^([0-9a-f]{64})?$`)
	folderName = regexp.MustCompile(`^[[:^cntrl:]]*$`)
)

// machineOf is the name of the Machine that has the file of an ETCDSnapshot; empty where nothing says it. A Machine that was moved here has
// another UID.
func (s *scope) machineOf(snapshot *rkev1.ETCDSnapshot) string {
	for _, m := range s.machines {
		for _, owner := range snapshot.OwnerReferences {
			if owner.Kind == "Machine" && owner.UID == m.machine.UID {
				return m.machine.Name
			}
		}
	}
	if name := snapshot.Labels[rkev1.MachineNameLabel]; name != "" {
		return name
	}
	node := snapshot.SnapshotFile.NodeName
	for _, m := range s.machines {
		if node != "" && (m.machine.Status.NodeRef.Name == node || m.inputs.NodeName == node) {
			return m.machine.Name
		}
	}
	return ""
}

// stopped is why nothing may be delivered to any machine but the tasks of a restore: it has begun to stop machines, or one has failed and
// left them stopped. Zero for neither.
func (s *scope) stopped() rollout.Wait {
	if operation.Exclusive(s.operation) {
		return rollout.Wait{Reason: rollout.ReasonWaitingForOperation, Message: "Waiting for " + operation.InProgress(s.operation) + " to end"}
	}
	names := s.stoppedMachines()
	if len(names) == 0 {
		return rollout.Wait{}
	}
	return rollout.Wait{Reason: rollout.ReasonRestoreFailed, Message: "The restore of an etcd snapshot did not end, and has left " +
		message.JoinNames(names, maxNames) + " stopped. Create another ETCDSnapshotRestore, of the same or another snapshot; or, if " +
		"the snapshot is restored and runs on other machines, delete and replace these Machines, which loses nothing"}
}

func (s *scope) stoppedMachines() []string {
	return namesOf(s.machines, func(m *machine) bool { return !m.state.Deleting && render.Stopped(m.report.Delivered) })
}

// strayNodes are the Nodes that belong to no Machine, or to one with etcd that is being deleted, and which is no member after a restore.
func (s *scope) strayNodes() (stray []operation.StrayNode) {
	if s.nodes == nil || operation.RestoreTarget(s.operation) == "" {
		return nil
	}
	for _, m := range s.others {
		s.nodes.Of(m)
	}
	leaving := map[string]bool{}
	for _, m := range s.machines {
		if node := s.nodes.Of(m.machine); node != nil && m.state.Deleting && m.state.Etcd {
			leaving[node.Name] = true
		}
	}
	for _, m := range s.machines {
		if node := s.nodes.Of(m.machine); node != nil && !m.state.Deleting {
			delete(leaving, node.Name)
		}
	}
	for _, node := range s.nodes.All() {
		if !s.nodes.Matched(node.Name) || leaving[node.Name] {
			stray = append(stray, operation.StrayNode{Name: node.Name, Lost: rollout.StateOf(&node) == rollout.NodeLost})
		}
	}
	return stray
}

// liveNodes lists the Nodes past the cache, which may still hold those of before a restore.
func (r *Reconciler) liveNodes(ctx context.Context, s *scope) ([]corev1.Node, error) {
	reader, err := r.ClusterCache.GetUncachedClient(ctx, client.ObjectKeyFromObject(s.cluster))
	if err != nil {
		return nil, err
	}
	return clusternodes.Read(ctx, reader)
}

// deleteStrayNodes deletes Nodes of a restored cluster.
func (r *Reconciler) deleteStrayNodes(ctx context.Context, s *scope) error {
	if len(s.deleteNodes) == 0 || s.nodes == nil {
		return nil
	}
	remote, err := r.ClusterCache.GetClient(ctx, client.ObjectKeyFromObject(s.cluster))
	if err != nil {
		return fmt.Errorf("connecting to the cluster: %w", err)
	}
	var errs []error
	for _, node := range s.nodes.All() {
		for _, name := range s.deleteNodes {
			if node.Name == name {
				ctrl.LoggerFrom(ctx).Info("Deleting a Node of the restored cluster that has no Machine", "Node", name)
				errs = append(errs, objects.Delete(ctx, remote, &node, client.Preconditions{UID: new(node.UID)}))
			}
		}
	}
	return kerrors.NewAggregate(errs)
}

// protectMachines keeps health checks of Machines, and the removal of etcd members, from acting on what a restore does: it marks all
// Machines while machines are stopped for it, and takes the marks away afterwards.
func (r *Reconciler) protectMachines(ctx context.Context, s *scope) error {
	mark := ""
	if operation.Exclusive(s.operation) {
		mark = operation.InProgress(s.operation)
	} else if len(s.stoppedMachines()) > 0 {
		mark = rollout.ReasonRestoreFailed
	}
	return r.markMachines(ctx, s, func(m *machine, k *marks) {
		s.releaseKeyHolder(k)
		if k.restoring != mark {
			k.restoring = mark
			k.setSkip(rkev1.RestoringAnnotation, mark != "")
		}
		s.protectKeyHolder(m, k)
		s.protectWaiting(m, k)
	})
}
