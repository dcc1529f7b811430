package rkecontrolplane

import (
	"context"
	"errors"
	"fmt"
	"path"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sigs.k8s.io/cluster-api/controllers/clustercache"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/plan/operation"
	"github.com/drover-dev/drover/hub/plan/render"
	"github.com/drover-dev/drover/hub/util/objects"
)

// readDeletion reads the ETCDSnapshot of an ETCDSnapshotDelete, past the cache: it may not have seen that the snapshot is missing. It
// returns nil for another operation, and where there is none.
func (r *Reconciler) readDeletion(ctx context.Context, s *scope, in *operation.Inputs) (*rkev1.ETCDSnapshot, error) {
	op, is := s.operation.(*operationv1.ETCDSnapshotDelete)
	if !is || op.Status.Phase.Ended() {
		return nil, nil
	}
	snapshot := &rkev1.ETCDSnapshot{}
	found, err := objects.Get(ctx, r.Live, s.key(op.Spec.Args.Name), snapshot)
	if err != nil || !found || !snapshot.DeletionTimestamp.IsZero() {
		return nil, err
	}
	in.Deletion = s.deletion(snapshot)
	return snapshot, nil
}

// deletion is what an ETCDSnapshot says that is to be deleted. Users may create and change ETCDSnapshots: what reaches the command line of
// a machine is checked, and the machine deletes only what the distribution itself lists as a snapshot.
func (s *scope) deletion(from *rkev1.ETCDSnapshot) operation.Deletion {
	file := from.SnapshotFile
	followed := from.Annotations[rkev1.SnapshotNameAnnotation] != ""
	out := operation.Deletion{
		Found: true, Followed: followed, Listed: followed && !from.Status.Missing,
		InBucket: file.S3 != nil, Machine: s.machineOf(from), Node: file.NodeName,
		File: operationv1.DeletedSnapshot{Name: file.Name, Location: file.Location},
	}
	local := strings.TrimPrefix(file.Location, "file://")
	switch {
	case from.Spec.ClusterName != s.cluster.Name:
		out.Problem = fmt.Sprintf("ETCDSnapshot %s is of the Cluster %q, not of %s", from.Name, from.Spec.ClusterName, s.cluster.Name)
	case file.Status == "failed":
		out.Unreachable = "the snapshot could not be saved, so that there is no file; the cluster lists it for a day"
	case !fileName.MatchString(file.Name):
		out.Unreachable = "the ETCDSnapshot has no valid snapshotFile.name"
	case file.S3 != nil:
		out.Unreachable = s.otherBucket(file)
		if out.Unreachable == "" && s.unknownToken(from) {
			out.Problem = fmt.Sprintf("ETCDSnapshot %s was saved with a server token that Secret %s does not have, so that it may be of another "+
				"cluster that uses the same folder of the bucket. Delete it there, or use the tools of S3", from.Name, s.tokenSecret.Name)
		}
	case !filePath.MatchString(local) || strings.Contains(local+"/", "/../") || path.Base(local) != file.Name:
		out.Unreachable = "the ETCDSnapshot has no snapshotFile.location that is the path of snapshotFile.name"
	default:
		out.File.Location = "file://" + local
	}
	return out
}

// snapshotFileKind is what RKE2 and k3s list their snapshots as, see hub/controllers/etcdsnapshot.
var snapshotFileKind = schema.GroupVersionKind{Group: "k3s.cattle.io", Version: "v1", Kind: "ETCDSnapshotFile"}

var s3Location = regexp.MustCompile(`^s3://[A-Za-z0-9._-]+/[[:^cntrl:]]+$`)

// otherBucket says why the machines of the cluster cannot delete a file in S3; empty if they can. They are configured with one bucket and
// one folder in it.
func (s *scope) otherBucket(file rkev1.ETCDSnapshotFile) string {
	if !s3Location.MatchString(file.Location) {
		return "the ETCDSnapshot has no valid snapshotFile.location"
	}
	configured, known := s.configuredBucket()
	if !known {
		configured = *file.S3
	}
	// The location is as RKE2 and k3s make it.
	switch location := fmt.Sprintf("s3://%s/%s", configured.Bucket, path.Join(configured.Folder, file.Name)); {
	case configured.Bucket == "":
		return "it is at " + file.Location + ", and the cluster has no bucket: set spec.rkeConfig.etcd.s3 of the Cluster, or use the tools of S3"
	case location != file.Location:
		return fmt.Sprintf("it is at %s, and the cluster's own file of this name would be %s: set bucket and folder in "+
			"spec.rkeConfig.etcd.s3 of the Cluster, or use the tools of S3", file.Location, location)
	case configured.Endpoint != "" && file.S3.Endpoint != "" && configured.Endpoint != file.S3.Endpoint:
		return fmt.Sprintf("it is at the endpoint %q, and the cluster uses %q: %s", file.S3.Endpoint, configured.Endpoint, bucketMoved)
	}
	return ""
}

// configuredBucket is where in S3 the machines with etcd copy their snapshots; the bucket is empty for nowhere. It is not known of a
// configuration that the hub does not write, nor without such a machine.
func (s *scope) configuredBucket() (bucket rkev1.ETCDSnapshotS3, known bool) {
	for _, m := range s.machines {
		if m.state.Etcd && !m.state.Deleting && !s.controlPlane.Spec.UnmanagedConfig {
			return render.SnapshotBucket(s.inputs, m.inputs), true
		}
	}
	return rkev1.ETCDSnapshotS3{}, false
}

// deleteSnapshot deletes the ETCDSnapshot of an operation once the cluster does not list its file, unless it has changed since it was read:
// the cluster may list the file again.
func (r *Reconciler) deleteSnapshot(ctx context.Context, s *scope) error {
	snapshot := s.deletedSnapshot
	if snapshot == nil {
		return nil
	}
	if listed, err := r.unlist(ctx, s, snapshot); err != nil || listed {
		return err
	}
	ctrl.LoggerFrom(ctx).Info("Deleting an ETCDSnapshot whose file was deleted, or cannot be reached", "ETCDSnapshot",
		client.ObjectKeyFromObject(snapshot), "location", snapshot.SnapshotFile.Location)
	return objects.Delete(ctx, r.Client, snapshot, client.Preconditions{UID: &snapshot.UID, ResourceVersion: &snapshot.ResourceVersion})
}

// unlist reports whether the cluster lists the file of an ETCDSnapshot, which would be created again. It deletes the ETCDSnapshotFile of a
// Node that is gone, as RKE2 and k3s do when they look through their snapshots, twice a day by default.
func (r *Reconciler) unlist(ctx context.Context, s *scope, snapshot *rkev1.ETCDSnapshot) (listed bool, _ error) {
	name := snapshot.Annotations[rkev1.SnapshotNameAnnotation]
	if name == "" || r.ClusterCache == nil {
		return false, nil
	}
	cluster := client.ObjectKeyFromObject(s.cluster)
	// It is the cache from which ETCDSnapshots are created.
	reader, err := r.ClusterCache.GetReader(ctx, cluster)
	if errors.Is(err, clustercache.ErrClusterNotConnected) {
		return true, nil
	}
	if err != nil {
		return true, fmt.Errorf("connecting to the cluster: %w", err)
	}
	file := &unstructured.Unstructured{}
	file.SetGroupVersionKind(snapshotFileKind)
	found, err := objects.Get(ctx, reader, client.ObjectKey{Name: name}, file)
	if meta.IsNoMatchError(err) || err == nil && !found {
		return false, nil
	}
	if err != nil {
		return true, err
	}
	node, _, _ := unstructured.NestedString(file.Object, "spec", "nodeName")
	location, _, _ := unstructured.NestedString(file.Object, "spec", "location")
	if snapshot.SnapshotFile.S3 != nil || node != snapshot.SnapshotFile.NodeName || location != snapshot.SnapshotFile.Location {
		return true, nil // the ETCDSnapshot will say that it is listed
	}
	there, err := objects.Get(ctx, reader, client.ObjectKey{Name: node}, &corev1.Node{}, client.UnsafeDisableDeepCopy)
	if err != nil || there {
		return true, err
	}
	remote, err := r.ClusterCache.GetClient(ctx, cluster)
	if err != nil {
		return true, fmt.Errorf("connecting to the cluster: %w", err)
	}
	ctrl.LoggerFrom(ctx).Info("Deleting an ETCDSnapshotFile in the cluster, whose Node is gone", "ETCDSnapshotFile", name, "Node", node)
	return true, objects.Delete(ctx, remote, file, client.Preconditions{UID: new(file.GetUID())})
}
