package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/drover-dev/drover/e2e/distro/internal/flavour"
	"github.com/drover-dev/drover/e2e/distro/internal/kubeconfig"
	"github.com/drover-dev/drover/e2e/distro/internal/snapshot"
)

var snapshotFileResource = schema.GroupVersionResource{Group: "k3s.cattle.io", Version: "v1", Resource: "etcdsnapshotfiles"}

// snapshotsSynced and bucketSynced are the annotations of a Node with the time at which its snapshots, or those in the bucket, were last
// compared with the objects.
var (
	snapshotsSynced = flavour.Name("etcd.*.cattle.io/local-snapshots-timestamp")
	bucketSynced    = flavour.Name("etcd.*.cattle.io/s3-snapshots-timestamp")
)

const (
	// faultKept is how long the object of a snapshot that could not be taken stays.
	faultKept = 24 * time.Hour
	// copyKept is how long the object of a snapshot in the bucket stays at least: another server may have uploaded it after the bucket was
	// listed.
	copyKept = time.Minute
	// snapshotsResync is how often files and objects are compared although nothing was asked for.
	snapshotsResync = 10 * time.Minute
	// syncTimeout is how long an operation on snapshots waits for the objects.
	syncTimeout = 10 * time.Second
)

// snapshotFiles makes the ETCDSnapshotFile objects of one node.
type snapshotFiles struct {
	objects dynamic.Interface
	core    kubernetes.Interface
	node    string
	// hasNode says that node is a Node of the cluster. A server without an agent is none, and may be one of several without.
	hasNode bool
	now     func() time.Time
}

// inventory is what the objects shall tell of: the files of a node, those in the bucket, and the snapshots that could not be taken.
type inventory struct {
	files []snapshot.File
	// bucket says that the bucket was listed. Otherwise the objects of what it holds stay as they are.
	bucket bool
	// deleted are the names of snapshots that have just been deleted.
	deleted []string
}

// sync makes an object for each file, and deletes those whose file is gone or whose node has no member of etcd any more.
func (f snapshotFiles) sync(ctx context.Context, inv inventory) error {
	want := map[string]snapshot.Object{}
	for _, file := range inv.files {
		o := snapshot.Describe(file, f.node)
		want[o.Name] = o
	}
	client := f.objects.Resource(snapshotFileResource)
	places := f.node
	if inv.bucket {
		places += "," + snapshot.NodeS3
	}
	have, err := client.List(ctx, metav1.ListOptions{LabelSelector: snapshot.NodeLabel + " in (" + places + ")"})
	if err != nil {
		return fmt.Errorf("listing snapshots: %w", err)
	}
	var faults []error
	for _, o := range have.Items {
		if _, ok := want[o.GetName()]; ok {
			delete(want, o.GetName())
			continue
		}
		name, _, _ := unstructured.NestedString(o.Object, "spec", "snapshotName")
		if !slices.Contains(inv.deleted, name) && (f.keepsFault(o) || f.isNewCopy(o)) {
			continue
		}
		faults = append(faults, f.delete(ctx, o.GetName()))
	}
	for name, o := range want {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&o)
		if err == nil {
			_, err = client.Create(ctx, &unstructured.Unstructured{Object: content}, metav1.CreateOptions{})
		}
		if err != nil && !apierrors.IsAlreadyExists(err) {
			faults = append(faults, fmt.Errorf("creating ETCDSnapshotFile %s: %w", name, err))
		}
	}
	if f.hasNode {
		faults = append(faults, f.deleteOrphans(ctx), f.markNode(ctx, inv.bucket))
	}
	return errors.Join(faults...)
}

func (f snapshotFiles) delete(ctx context.Context, name string) error {
	err := f.objects.Resource(snapshotFileResource).Delete(ctx, name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting ETCDSnapshotFile %s: %w", name, err)
	}
	return nil
}

func (f snapshotFiles) isNewCopy(o unstructured.Unstructured) bool {
	_, copied, _ := unstructured.NestedMap(o.Object, "spec", "s3")
	return copied && f.now().Before(o.GetCreationTimestamp().Add(copyKept))
}

// keepsFault reports whether an object tells of a snapshot that could not be taken, and not too long ago.
func (f snapshotFiles) keepsFault(o unstructured.Unstructured) bool {
	text, found, _ := unstructured.NestedString(o.Object, "status", "error", "time")
	at, err := time.Parse(time.RFC3339, text)
	return found && err == nil && f.now().Before(at.Add(faultKept))
}

// deleteOrphans deletes the objects of nodes that run no member of etcd: nobody could restore those files.
func (f snapshotFiles) deleteOrphans(ctx context.Context) error {
	nodes, err := f.core.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: "node-role.kubernetes.io/etcd=true"})
	if err != nil {
		return fmt.Errorf("listing etcd nodes: %w", err)
	}
	known := []string{snapshot.NodeS3, f.node}
	for _, n := range nodes.Items {
		known = append(known, n.Name)
	}
	list, err := f.objects.Resource(snapshotFileResource).List(ctx,
		metav1.ListOptions{LabelSelector: snapshot.NodeLabel + " notin (" + strings.Join(known, ",") + ")"})
	if err != nil {
		return fmt.Errorf("listing snapshots of other nodes: %w", err)
	}
	var faults []error
	for _, o := range list.Items {
		faults = append(faults, f.delete(ctx, o.GetName()))
	}
	return errors.Join(faults...)
}

func (f snapshotFiles) markNode(ctx context.Context, bucket bool) error {
	now := f.now().UTC().Format(time.RFC3339)
	marks := map[string]string{snapshotsSynced: now}
	if bucket {
		marks[bucketSynced] = now
	}
	raw, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": marks}})
	if err != nil {
		return err
	}
	_, err = f.core.CoreV1().Nodes().Patch(ctx, f.node, types.MergePatchType, raw, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) { // it is being made
		return nil
	}
	return err
}

// snapshotClients connects to the Kubernetes API, wherever it is.
func (s *server) snapshotClients() (snapshotFiles, error) {
	f := snapshotFiles{node: s.NodeName, hasNode: !s.DisableAgent, now: time.Now}
	conf, err := kubeconfig.Load(s.data.Cred("supervisor.kubeconfig"))
	if err != nil {
		return f, err
	}
	if f.objects, err = dynamic.NewForConfig(conf); err != nil {
		return f, err
	}
	f.core, err = kubernetes.NewForConfig(conf)
	return f, err
}

// snapshotMetadata is what the cluster's ConfigMap says that every snapshot shall keep, or nothing if the API does not answer.
func (s *server) snapshotMetadata(ctx context.Context) map[string]string {
	f, err := s.snapshotClients()
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	m, err := f.core.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, snapshot.MetadataConfigMap, metav1.GetOptions{})
	if err != nil {
		return nil
	}
	return m.Data
}

func (s *server) snapshotFailed(f snapshot.File) {
	s.faultsMu.Lock()
	defer s.faultsMu.Unlock()
	s.faults = append(s.faults, f)
}

// inventory lists the files of a folder, and the snapshots that could not be taken not too long ago.
func (s *server) inventory(folder snapshot.Folder) (inventory, error) {
	var inv inventory
	files, err := folder.List()
	s.faultsMu.Lock()
	defer s.faultsMu.Unlock()
	var kept []snapshot.File
	for _, f := range s.faults {
		if time.Since(f.Created) < faultKept {
			kept = append(kept, f)
		}
	}
	s.faults = kept
	for i, f := range files {
		files[i].TokenHash = s.takenWith[f.Name]
	}
	inv.files = append(files, kept...)
	return inv, err
}

// copies lists the bucket of the settings and reports whether it could. One that cannot be listed is left for the next time.
func (s *server) copies(ctx context.Context, set snapshotSettings) ([]snapshot.File, bool) {
	if set.s3 == nil {
		return nil, false
	}
	b, err := s.bucket(ctx, *set.s3)
	if err == nil {
		var files []snapshot.File
		if files, err = b.List(ctx); err == nil {
			return files, true
		}
	}
	s.log.Warn("Cannot list snapshots in S3", "bucket", set.s3, "error", err)
	return nil, false
}

func (s *server) syncSnapshots(ctx context.Context, set snapshotSettings, deleted ...string) error {
	f, err := s.snapshotClients()
	if err != nil {
		return err
	}
	copied, listed := s.copies(ctx, set) // not with the lock: a bucket may take minutes to answer
	s.syncMu.Lock()
	defer s.syncMu.Unlock()
	inv, err := s.inventory(set.folder) // as k3s does: the folder that a command names is the only one that counts
	if err != nil {
		return err
	}
	inv.files, inv.bucket, inv.deleted = append(inv.files, copied...), listed, deleted
	ctx, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	return f.sync(ctx, inv)
}

// syncSoon tries to bring the objects up to date now, and leaves the rest to followSnapshots.
func (s *server) syncSoon(ctx context.Context, set snapshotSettings, deleted ...string) {
	if err := s.syncSnapshots(ctx, set, deleted...); err != nil {
		s.log.Info("The ETCDSnapshotFile objects are behind the files, trying again", "error", err)
		s.syncLater()
	}
}

func (s *server) syncLater() {
	select {
	case s.snapshotsBehind <- struct{}{}:
	default:
	}
}

// followSnapshots keeps the ETCDSnapshotFile objects of this node as its files are.
func (s *server) followSnapshots(ctx context.Context) {
	for {
		pause := snapshotsResync
		if err := s.syncSnapshots(ctx, s.scheduled()); err != nil {
			s.log.Debug("Cannot write ETCDSnapshotFile objects", "error", err)
			pause = 5 * time.Second
		}
		select {
		case <-ctx.Done():
			return
		case <-s.snapshotsBehind:
		case <-time.After(pause):
		}
	}
}
