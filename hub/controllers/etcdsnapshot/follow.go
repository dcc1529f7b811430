package etcdsnapshot

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/index"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/util/clustermachines"
	"github.com/drover-dev/drover/hub/util/message"
	"github.com/drover-dev/drover/hub/util/objects"
	"github.com/drover-dev/drover/hub/util/plansecrets"
)

const (
	// removedAfter is how long a snapshot is missing before its ETCDSnapshot is deleted, where its node is there, or it was in a bucket: a
	// control plane that has just started may not list all of them yet.
	removedAfter = 10 * time.Minute
	// lostAfter is the same where the node is gone, or does not report: the file may be on a disk that somebody still has.
	lostAfter = 7 * 24 * time.Hour

	// maxMetadata bounds the metadata of a snapshot, in bytes; RKE2 and k3s put the Cluster's specification into it, compressed.
	maxMetadata = 128 << 10
)

// follow makes the ETCDSnapshots of a cluster follow its files, and returns when it is to be called again; 0 for no time.
func (r *Reconciler) follow(ctx context.Context, cluster *clusterv1.Cluster, files []file) (time.Duration, error) {
	key := client.ObjectKeyFromObject(cluster)
	var list rkev1.ETCDSnapshotList
	of := client.MatchingLabels{rkev1.ClusterNameLabel: key.Name}
	if err := r.Client.List(ctx, &list, client.InNamespace(key.Namespace), of); err != nil {
		return 0, fmt.Errorf("listing ETCDSnapshots of Cluster %s: %w", key, err)
	}
	n := nodes{r: r, cluster: key}
	var errs []error
	listed := map[string]bool{}
	for i := range files {
		snapshot, err := r.apply(ctx, cluster, &files[i], &n)
		if err != nil {
			errs = append(errs, err)
		}
		if snapshot == nil {
			continue
		}
		listed[snapshot.Name] = true
		_, gone, err := n.find(ctx, snapshot)
		if err == nil {
			err = r.setMissing(ctx, snapshot, gone)
		}
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return 0, err // what failed is listed, and must not count as missing
	}
	next := time.Duration(0)
	for i := range list.Items {
		snapshot := &list.Items[i]
		if snapshot.Annotations[rkev1.SnapshotNameAnnotation] == "" || listed[snapshot.Name] || !snapshot.DeletionTimestamp.IsZero() {
			continue
		}
		wait, err := r.miss(ctx, snapshot, &n)
		if err != nil {
			return 0, err
		}
		if wait > 0 && (next == 0 || wait < next) {
			next = wait
		}
	}
	return next, nil
}

// apply writes the ETCDSnapshot of a file and returns it; nil if others have its names.
func (r *Reconciler) apply(ctx context.Context, cluster *clusterv1.Cluster, f *file, n *nodes) (*rkev1.ETCDSnapshot, error) {
	machine, err := n.machine(ctx, f.Spec.NodeName)
	if err != nil {
		return nil, err
	}
	checksum, err := n.checksum(ctx, machine, f)
	if err != nil {
		return nil, err
	}
	if f.Spec.S3 != nil {
		machine = nil
	}
	snapshot, err := wanted(cluster, machine, f)
	if err != nil {
		return nil, err
	}
	there := &rkev1.ETCDSnapshot{}
	found, err := r.chooseName(ctx, snapshot, there)
	if errors.Is(err, errNameTaken) {
		ctrl.LoggerFrom(ctx).Info("Another file has an ETCDSnapshot of this name", "ETCDSnapshot", client.ObjectKeyFromObject(snapshot))
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for key, value := range map[string]string{
		rkev1.SnapshotSHA256Annotation: checksum, rkev1.SnapshotTokenHashAnnotation: f.tokenHash(),
	} {
		// Both outlive what they are from: the machine that has saved the file, and the list of a cluster that was restored since.
		if value == "" && found && there.SnapshotFile.Location == snapshot.SnapshotFile.Location {
			value = there.Annotations[key]
		}
		if value != "" {
			snapshot.Annotations[key] = value
		}
	}
	return snapshot, r.applied.Apply(ctx, client.ObjectKeyFromObject(snapshot), snapshot)
}

// wanted is the ETCDSnapshot of a file. machine is that of the node that has the file; nil if it is in a bucket, or the machine is not
// known. The Machine is an owner, as users of Rancher know it; the Cluster is another, which keeps it after the Machine is deleted.
func wanted(cluster *clusterv1.Cluster, machine *clusterv1.Machine, f *file) (*rkev1.ETCDSnapshot, error) {
	metadata, err := json.Marshal(f.Spec.Metadata)
	if err != nil {
		return nil, fmt.Errorf("encoding the metadata of ETCDSnapshotFile %s: %w", f.Metadata.Name, err)
	}
	if len(metadata) > maxMetadata {
		metadata = nil
	}
	snapshot := &rkev1.ETCDSnapshot{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: cluster.Namespace, Name: rkev1.SafeConcat(cluster.Name, f.Metadata.Name),
			Labels: map[string]string{rkev1.ClusterNameLabel: cluster.Name},
			Annotations: map[string]string{
				rkev1.SnapshotNameAnnotation: f.Metadata.Name, rkev1.SnapshotFileNameAnnotation: f.Spec.SnapshotName,
				rkev1.SnapshotStorageAnnotation: rkev1.SnapshotStorageLocal,
			},
		},
		Spec: rkev1.ETCDSnapshotSpec{ClusterName: cluster.Name},
		SnapshotFile: rkev1.ETCDSnapshotFile{
			Name: f.Spec.SnapshotName, NodeName: f.Spec.NodeName, Location: f.Spec.Location, CreatedAt: f.Status.CreationTime,
			Metadata: base64.StdEncoding.EncodeToString(metadata), Status: "failed",
			Message: message.Bound(f.Status.Error.Message, message.MaxError),
		},
	}
	if f.Status.ReadyToUse {
		snapshot.SnapshotFile.Status = "successful"
	}
	if f.Status.Size != nil {
		snapshot.SnapshotFile.Size = f.Status.Size.Value()
	}
	if s3 := f.Spec.S3; s3 != nil {
		snapshot.Annotations[rkev1.SnapshotStorageAnnotation] = rkev1.SnapshotStorageS3
		snapshot.SnapshotFile.S3 = &rkev1.ETCDSnapshotS3{
			Endpoint: s3.Endpoint, EndpointCA: s3.EndpointCA, SkipSSLVerify: s3.SkipSSLVerify, Bucket: s3.Bucket, Region: s3.Region,
			Folder: s3.Prefix,
		}
	}
	if machine != nil {
		snapshot.OwnerReferences = append(snapshot.OwnerReferences, owner("Machine", machine))
		snapshot.Labels[rkev1.MachineNameLabel] = machine.Name
	}
	snapshot.OwnerReferences = append(snapshot.OwnerReferences, owner("Cluster", cluster))
	return snapshot, nil
}

func owner(kind string, object client.Object) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: clusterv1.GroupVersion.String(), Kind: kind, Name: object.GetName(), UID: object.GetUID()}
}

// miss marks an ETCDSnapshot that the cluster does not list as missing, and deletes it after some time. It returns how long that will be.
func (r *Reconciler) miss(ctx context.Context, snapshot *rkev1.ETCDSnapshot, n *nodes) (time.Duration, error) {
	if err := r.setMissing(ctx, snapshot, true); err != nil {
		return 0, err
	}
	end, err := n.deletion(ctx, snapshot)
	if err != nil {
		return 0, err
	}
	if left := end.Sub(r.Now()); left > 0 {
		return left, nil
	}
	ctrl.LoggerFrom(ctx).Info("Deleting an ETCDSnapshot that the cluster does not list", "ETCDSnapshot", client.ObjectKeyFromObject(snapshot),
		"missingSince", snapshot.Status.MissingSince)
	r.applied.Forget(client.ObjectKeyFromObject(snapshot))
	return 0, objects.Delete(ctx, r.Client, snapshot, client.Preconditions{UID: &snapshot.UID})
}

// setMissing writes status.missing where it is not so yet.
func (r *Reconciler) setMissing(ctx context.Context, snapshot *rkev1.ETCDSnapshot, missing bool) error {
	if snapshot.Status.Missing == missing && (snapshot.Status.MissingSince != nil) == missing {
		return nil
	}
	base := snapshot.DeepCopy()
	snapshot.Status = rkev1.ETCDSnapshotStatus{Missing: missing}
	if missing {
		now := metav1.NewTime(r.Now())
		snapshot.Status.MissingSince = &now
	}
	if err := r.Client.Status().Patch(ctx, snapshot, client.MergeFrom(base), fieldOwner); err != nil {
		return fmt.Errorf("writing the status of ETCDSnapshot %s: %w", client.ObjectKeyFromObject(snapshot), err)
	}
	return nil
}

// nodes finds what belongs to the nodes of a cluster, each once.
type nodes struct {
	r        *Reconciler
	cluster  client.ObjectKey
	machines map[string]*clusterv1.Machine
	// known are Nodes; nil for one that is gone.
	known map[string]*corev1.Node
	// checksums are those that machines have reported, by Machine and file; nil until they are read.
	checksums map[string]map[string]string
}

// checksum is what the machine that has taken a snapshot has reported of its file; empty if it did not.
func (n *nodes) checksum(ctx context.Context, machine *clusterv1.Machine, f *file) (string, error) {
	if machine == nil {
		return "", nil
	}
	if n.checksums == nil {
		machines, err := clustermachines.List(ctx, n.r.Cache, n.cluster)
		if err != nil {
			return "", err
		}
		secrets, err := plansecrets.ByName(ctx, n.r.Cache, n.cluster)
		if err != nil {
			return "", err
		}
		n.checksums = map[string]map[string]string{}
		for _, m := range machines {
			if secret := plansecrets.Of(m.Bootstrap, secrets); secret != nil {
				recorded, _ := rkev1.ReadSnapshotChecksums(secret.Annotations) // none, where it cannot be read
				n.checksums[m.Machine.Name] = recorded.Map()
			}
		}
	}
	return n.checksums[machine.Name][f.Spec.SnapshotName], nil
}

// machine returns the Machine of a node, or nil.
func (n *nodes) machine(ctx context.Context, node string) (*clusterv1.Machine, error) {
	if machine, ok := n.machines[node]; ok {
		return machine, nil
	}
	var list clusterv1.MachineList
	err := n.r.Client.List(ctx, &list, client.InNamespace(n.cluster.Namespace), client.MatchingFields{index.MachineNodeNameField: node},
		client.MatchingLabels{clusterv1.ClusterNameLabel: n.cluster.Name}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("listing the Machines of node %s: %w", node, err)
	}
	if n.machines == nil {
		n.machines = map[string]*clusterv1.Machine{}
	}
	n.machines[node] = nil
	if len(list.Items) == 1 && list.Items[0].DeletionTimestamp.IsZero() {
		n.machines[node] = &list.Items[0]
	}
	return n.machines[node], nil
}

// deletion is when an ETCDSnapshot that is missing has to be deleted. A Node that does not report, as a server that a restore has stopped
// and not started yet, may have files that nobody lists. It lists them some time after it reports again, as one that was gone does.
func (n *nodes) deletion(ctx context.Context, snapshot *rkev1.ETCDSnapshot) (time.Time, error) {
	since := snapshot.Status.MissingSince.Time
	node, gone, err := n.find(ctx, snapshot)
	if err != nil {
		return time.Time{}, err
	}
	if gone || node != nil && !reports(node) {
		return since.Add(lostAfter), nil
	}
	if node != nil {
		for _, at := range []time.Time{node.CreationTimestamp.Time, readySince(node)} {
			if at.After(since) {
				since = at
			}
		}
	}
	return since.Add(removedAfter), nil
}

// readySince is when a Node has become ready, or stopped to be; zero where nothing says so.
func readySince(node *corev1.Node) time.Time {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.LastTransitionTime.Time
		}
	}
	return time.Time{}
}

// reports is false for a Node of which the cluster knows that its kubelet has stopped reporting.
func reports(node *corev1.Node) bool {
	return !slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionUnknown
	})
}

// find returns the Node that has a snapshot, or that it is gone; neither for a snapshot in a bucket.
func (n *nodes) find(ctx context.Context, snapshot *rkev1.ETCDSnapshot) (node *corev1.Node, gone bool, err error) {
	name := snapshot.SnapshotFile.NodeName
	if snapshot.SnapshotFile.S3 != nil || name == "" {
		return nil, false, nil
	}
	if node, ok := n.known[name]; ok {
		return node, node == nil, nil
	}
	if node, err = n.r.node(ctx, n.cluster, name); err != nil {
		return nil, false, fmt.Errorf("reading Node %s of Cluster %s: %w", name, n.cluster, err)
	}
	if n.known == nil {
		n.known = map[string]*corev1.Node{}
	}
	n.known[name] = node
	return node, node == nil, nil
}
