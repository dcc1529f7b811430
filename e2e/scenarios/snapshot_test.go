//go:build e2e

package scenarios

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/e2e/hosts"
	"github.com/drover-dev/drover/e2e/lab"
	"github.com/drover-dev/drover/e2e/scenarios/suite"
	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

const bucketSecret = "bucket"

// makeBucket starts an S3 server and makes a Secret with its keys.
func makeBucket(t *testing.T, namespace string) lab.ObjectStore {
	t.Helper()
	store, err := shared.StartObjectStore(t.Context())
	suite.Must(t, err)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: bucketSecret},
		StringData: map[string]string{"accessKey": store.AccessKey, "secretKey": store.SecretKey}}
	suite.Must(t, shared.Hub.Create(t.Context(), secret))
	t.Cleanup(func() {
		suite.Must(t, errors.Join(shared.StopObjectStore(), shared.Hub.Delete(context.Background(), secret)))
	})
	return store
}

// useBucket has a Cluster copy its snapshots to a bucket.
func useBucket(t *testing.T, key client.ObjectKey, store lab.ObjectStore) {
	t.Helper()
	changeCluster(t, key, func(c *provisioningv1.Cluster) {
		c.Spec.RKEConfig.ETCD = &rkev1.ETCD{S3: &rkev1.ETCDSnapshotS3{Endpoint: store.Endpoint, EndpointCA: store.CA, Region: store.Region,
			Bucket: store.Bucket, Folder: key.Name, CloudCredentialName: key.Namespace + ":" + bucketSecret}}
	})
}

func changeCluster(t *testing.T, key client.ObjectKey, change func(*provisioningv1.Cluster)) {
	t.Helper()
	cluster := &provisioningv1.Cluster{}
	suite.Must(t, shared.Hub.Get(t.Context(), key, cluster))
	base := cluster.DeepCopy()
	change(cluster)
	suite.Must(t, shared.Hub.Patch(t.Context(), cluster, client.MergeFrom(base)))
}

// saveSnapshot asks for a snapshot by the generation in the Cluster, and finds it as ETCDSnapshots, whose names it returns, as a file on
// the machine and in the bucket.
func saveSnapshot(t *testing.T, host *hosts.Host, key client.ObjectKey, store lab.ObjectStore) (localName, remoteName string) {
	ctx := t.Context()
	changeCluster(t, key, func(c *provisioningv1.Cluster) {
		c.Spec.RKEConfig.ETCDSnapshotCreate = &rkev1.ETCDSnapshotCreate{Generation: 1}
	})
	suite.Must(t, shared.WaitFor(ctx, "the snapshot is saved", 5*time.Minute, func(ctx context.Context) (bool, string) {
		op := &operationv1.ETCDSnapshotSave{}
		if err := shared.Hub.Get(ctx, client.ObjectKey{Namespace: key.Namespace, Name: key.Name + "-snapshot-1"}, op); err != nil {
			return false, err.Error()
		}
		if op.Status.Phase.Ended() && op.Status.Phase != operationv1.PhaseSucceeded {
			t.Fatalf("it has ended: %+v", op.Status)
		}
		return op.Status.Phase == operationv1.PhaseSucceeded, string(op.Status.Phase)
	}))
	var local, remote *rkev1.ETCDSnapshotFile
	suite.Must(t, shared.WaitFor(ctx, "the snapshot is listed", 2*time.Minute, func(ctx context.Context) (bool, string) {
		list := &rkev1.ETCDSnapshotList{}
		if err := shared.Hub.List(ctx, list, client.InNamespace(key.Namespace),
			client.MatchingLabels{rkev1.ClusterNameLabel: key.Name}); err != nil {
			return false, err.Error()
		}
		for i := range list.Items {
			file := &list.Items[i].SnapshotFile
			switch {
			case !strings.HasPrefix(file.Name, "on-demand"):
			case strings.HasPrefix(file.Location, "s3://"):
				remote, remoteName = file, list.Items[i].Name
			default:
				local, localName = file, list.Items[i].Name
			}
		}
		return local != nil && remote != nil, fmt.Sprintf("%d are listed", len(list.Items))
	}))
	t.Logf("%s, %d bytes, at %s and %s", local.Name, local.Size, local.Location, remote.Location)
	result, err := host.Exec(ctx, "stat", "-c", "%s", strings.TrimPrefix(local.Location, "file://"))
	suite.Must(t, err)
	if size := strings.TrimSpace(string(result.Stdout)); size != strconv.FormatInt(local.Size, 10) || local.Status != "successful" ||
		local.Metadata == "" {
		t.Errorf("the file has %s bytes; listed: %+v", size, local)
	}
	object, err := os.Stat(filepath.Join(store.Dir, key.Name, remote.Name))
	suite.Must(t, err)
	if object.Size() != remote.Size || remote.Size != local.Size || remote.Status != "successful" || remote.S3 == nil {
		t.Errorf("the object has %d bytes; listed: %+v", object.Size(), remote)
	}
	// The key is in the machine's plan and configuration, and nowhere that others read.
	journal, err := host.Exec(ctx, "journalctl", "--no-pager", "--output=cat")
	suite.Must(t, err)
	if strings.Contains(string(journal.Stdout), store.SecretKey) {
		t.Error("the secret key of the bucket is in the journal")
	}
	readable, err := host.Exec(ctx, "sh", "-c", `find /etc/rancher /var/lib/rancher -xdev -type f -perm -o=r -size -1024k \
		-exec grep -l -F -e "$0" {} + || true`, store.SecretKey)
	suite.Must(t, err)
	if files := strings.TrimSpace(string(readable.Stdout)); files != "" {
		t.Errorf("the secret key of the bucket is in files that everybody may read: %s", files)
	}
	return localName, remoteName
}

// deleteSnapshots deletes the copy of a snapshot in the bucket, and then the file of the same name on the machine, by the hub's command.
// Each goes with its ETCDSnapshot, and the other one stays.
func deleteSnapshots(t *testing.T, host *hosts.Host, key client.ObjectKey, store lab.ObjectStore, onMachine, inBucket string) {
	ctx := t.Context()
	local, remote := &rkev1.ETCDSnapshot{}, &rkev1.ETCDSnapshot{}
	suite.Must(t, shared.Hub.Get(ctx, client.ObjectKey{Namespace: key.Namespace, Name: onMachine}, local))
	suite.Must(t, shared.Hub.Get(ctx, client.ObjectKey{Namespace: key.Namespace, Name: inBucket}, remote))
	unit := distributionOf(t, key).ServerUnit
	started, err := host.Exec(ctx, "systemctl", "show", "--property=ActiveEnterTimestamp", unit)
	suite.Must(t, err)
	there := func() (file, copied bool) {
		_, err := os.Stat(filepath.Join(store.Dir, key.Name, remote.SnapshotFile.Name))
		result, _ := host.Exec(ctx, "stat", strings.TrimPrefix(local.SnapshotFile.Location, "file://"))
		return result.ExitCode == 0, err == nil
	}
	gone := func(name string) bool {
		err := shared.Hub.Get(ctx, client.ObjectKey{Namespace: key.Namespace, Name: name}, &rkev1.ETCDSnapshot{})
		return err != nil && client.IgnoreNotFound(err) == nil
	}
	t.Log(shared.RunHub(t, "snapshot", "delete", key.String(), inBucket, "--yes", "--wait", "--timeout", "5m"))
	suite.Must(t, shared.WaitFor(ctx, "the copy and its ETCDSnapshot are gone", time.Minute, func(context.Context) (bool, string) {
		_, copied := there()
		return !copied && gone(inBucket), fmt.Sprintf("the copy is there: %v, its ETCDSnapshot is gone: %v", copied, gone(inBucket))
	}))
	if file, _ := there(); !file {
		t.Error("the file on the machine is gone with its copy")
	}
	suite.Must(t, shared.WaitFor(ctx, "the file on the machine is listed", 2*time.Minute, func(ctx context.Context) (bool, string) {
		err := shared.Hub.Get(ctx, client.ObjectKeyFromObject(local), local)
		return err == nil && !local.Status.Missing, fmt.Sprintf("%v, %+v", err, local.Status)
	}))
	t.Log(shared.RunHub(t, "snapshot", "delete", key.String(), onMachine, "--yes", "--wait", "--timeout", "5m"))
	suite.Must(t, shared.WaitFor(ctx, "the file and its ETCDSnapshot are gone", time.Minute, func(context.Context) (bool, string) {
		file, _ := there()
		return !file && gone(onMachine), fmt.Sprintf("the file is there: %v, its ETCDSnapshot is gone: %v", file, gone(onMachine))
	}))
	now, err := host.Exec(ctx, "systemctl", "show", "--property=ActiveEnterTimestamp", unit)
	suite.Must(t, err)
	if now.Stdout != started.Stdout {
		t.Errorf("%s has started again: %s, before %s", unit, now.Stdout, started.Stdout)
	}
}
