package etcdsnapshot

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/util/objects"
)

const (
	maxName = 63
	// nameDigest is how many bytes of a digest a distinct name has.
	nameDigest = 5
)

// errNameTaken is returned where both names of a snapshot belong to others.
var errNameTaken = errors.New("the ETCDSnapshots of both names belong to other files")

// chooseName gives a snapshot its distinct name where the usual one belongs to another file, and reads what is there into there. The file
// "b-x" of the Cluster "a" and the file "x" of the Cluster "a-b" have the same usual name, and long names are cut. The file that comes
// first has it; the other one keeps its distinct name for as long as it is listed, so that no name changes.
func (r *Reconciler) chooseName(ctx context.Context, snapshot, there *rkev1.ETCDSnapshot) (found bool, err error) {
	taken, err := objects.Get(ctx, r.Client, client.ObjectKeyFromObject(snapshot), there)
	if err != nil || taken && sameFile(there, snapshot) {
		return taken, err
	}
	usual := snapshot.Name
	snapshot.Name = distinctName(snapshot)
	*there = rkev1.ETCDSnapshot{}
	switch found, err = objects.Get(ctx, r.Client, client.ObjectKeyFromObject(snapshot), there); {
	case err != nil:
		return false, err
	case found && !sameFile(there, snapshot):
		return false, errNameTaken
	case !found && !taken:
		snapshot.Name = usual
	}
	return found, nil
}

// sameFile reports whether an ETCDSnapshot stands for the file of the wanted one. One without the name of a file may be of any.
func sameFile(there, wanted *rkev1.ETCDSnapshot) bool {
	file := there.Annotations[rkev1.SnapshotNameAnnotation]
	return there.Labels[rkev1.ClusterNameLabel] == wanted.Labels[rkev1.ClusterNameLabel] &&
		(file == "" || file == wanted.Annotations[rkev1.SnapshotNameAnnotation])
}

// distinctName is a name that no other file of any cluster has: it ends with a digest in which cluster and file are apart.
func distinctName(snapshot *rkev1.ETCDSnapshot) string {
	cluster, file := snapshot.Labels[rkev1.ClusterNameLabel], snapshot.Annotations[rkev1.SnapshotNameAnnotation]
	sum := sha256.Sum256([]byte(cluster + "/" + file))
	name := cluster + "-" + file
	name = strings.TrimRight(name[:min(len(name), maxName-1-2*nameDigest)], "-.")
	return name + "-" + hex.EncodeToString(sum[:nameDigest])
}
