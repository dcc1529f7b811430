package etcdsnapshot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"sigs.k8s.io/cluster-api/controllers/clustercache"

	"github.com/drover-dev/drover/hub/plan/release"
)

const (
	// kindInterval is how often a cluster is asked for ETCDSnapshotFiles that did not know the kind: one without etcd never does.
	kindInterval = 10 * time.Minute
	// maxFiles bounds how many ETCDSnapshots a cluster can have the hub keep. The newest count.
	maxFiles = 1000
	// maxTexts bounds, in bytes, all other texts of one of them together, of which an authority is the longest, and maxAllMetadata the
	// metadata of all. That of the newest counts.
	maxTexts       = 64 << 10
	maxAllMetadata = 16 << 20
	// maxQuantity is the length of a size.
	maxQuantity = 32
)

var (
	fileKind  = schema.GroupVersionKind{Group: "k3s.cattle.io", Version: "v1", Kind: "ETCDSnapshotFile"}
	errNoKind = errors.New("the cluster does not have the kind ETCDSnapshotFile")
)

// file is what is read of an ETCDSnapshotFile; see k3s.cattle.io/v1 in https://github.com/k3s-io/api. RKE2 uses the same kind.
type file struct {
	Metadata metav1.ObjectMeta `json:"metadata"`
	Spec     struct {
		SnapshotName string            `json:"snapshotName"`
		NodeName     string            `json:"nodeName"`
		Location     string            `json:"location"`
		Metadata     map[string]string `json:"metadata"`
		S3           *fileS3           `json:"s3"`
	} `json:"spec"`
	Status struct {
		Size         *quantity    `json:"size"`
		CreationTime *metav1.Time `json:"creationTime"`
		ReadyToUse   bool         `json:"readyToUse"`
		Error        struct {
			Message string `json:"message"`
		} `json:"error"`
	} `json:"status"`
}

// quantity is a resource.Quantity that was not checked before. To parse one takes hours if its exponent is long.
type quantity struct{ resource.Quantity }

// exponent is one of more than two digits.
var exponent = regexp.MustCompile(`[eE][+-]?[0-9]{3}`)

// UnmarshalJSON implements json.Unmarshaler.
func (q *quantity) UnmarshalJSON(raw []byte) error {
	if len(raw) > maxQuantity || exponent.Match(raw) {
		return errors.New("the quantity is too long")
	}
	return q.Quantity.UnmarshalJSON(raw)
}

type fileS3 struct {
	Endpoint      string `json:"endpoint"`
	EndpointCA    string `json:"endpointCA"`
	SkipSSLVerify bool   `json:"skipSSLVerify"`
	Bucket        string `json:"bucket"`
	Region        string `json:"region"`
	Prefix        string `json:"prefix"`
}

// list watches and lists the ETCDSnapshotFiles of a cluster. The error is clustercache.ErrClusterNotConnected while there is no connection
// to the cluster, and errNoKind where the cluster does not know the kind.
func (r *Reconciler) list(ctx context.Context, cluster ctrl.Request) ([]file, error) {
	downstream, err := r.ClusterCache.GetClient(ctx, cluster.NamespacedName)
	if err != nil {
		return nil, err
	}
	// A watch of an unknown kind would wait for its definition.
	if _, err := downstream.RESTMapper().RESTMapping(fileKind.GroupKind(), fileKind.Version); meta.IsNoMatchError(err) {
		return nil, errNoKind
	} else if err != nil {
		return nil, fmt.Errorf("finding the kind ETCDSnapshotFile in Cluster %s: %w", cluster, err)
	}
	kind := &unstructured.Unstructured{}
	kind.SetGroupVersionKind(fileKind)
	for _, w := range []clustercache.WatcherOptions{
		{Name: controllerName + "-files", Kind: kind},
		{Name: controllerName + "-nodes", Kind: &corev1.Node{}, Predicates: []predicate.Predicate{createdOrDeleted}},
	} {
		w.Watcher = r.controller
		w.EventHandler = handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []ctrl.Request {
			return []ctrl.Request{cluster}
		})
		if err := r.ClusterCache.Watch(ctx, cluster.NamespacedName, clustercache.NewWatcher(w)); err != nil {
			return nil, err
		}
	}
	reader, err := r.ClusterCache.GetReader(ctx, cluster.NamespacedName)
	if err != nil {
		return nil, err
	}
	listed := &unstructured.UnstructuredList{}
	listed.SetGroupVersionKind(fileKind.GroupVersion().WithKind(fileKind.Kind + "List"))
	if err := reader.List(ctx, listed, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing ETCDSnapshotFiles of Cluster %s: %w", cluster, err)
	}
	files, ignored := parse(listed.Items)
	if ignored > 0 {
		ctrl.LoggerFrom(ctx).Info("Ignored ETCDSnapshotFiles that are invalid, unfinished, in another folder of the bucket, or older than the "+
			"newest ones", "ignored", ignored, "limit", maxFiles)
	}
	return files, nil
}

// createdOrDeleted drops updates: it matters whether a Node exists.
var createdOrDeleted = predicate.Funcs{UpdateFunc: func(event.UpdateEvent) bool { return false }}

// parse returns what can be read of ETCDSnapshotFiles, the newest first, and how many are left out. Whoever administers the cluster writes
// them.
func parse(items []unstructured.Unstructured) (files []file, ignored int) {
	for i := range items {
		f := file{}
		err := runtime.DefaultUnstructuredConverter.FromUnstructured(items[i].Object, &f)
		if err != nil || f.Spec.SnapshotName == "" || f.Spec.NodeName == "" || f.Metadata.DeletionTimestamp != nil || f.inOtherFolder() ||
			f.unfinished() || f.texts() > maxTexts {
			ignored++
			continue
		}
		files = append(files, f)
	}
	slices.SortFunc(files, func(a, b file) int {
		return cmp.Or(b.created().Compare(a.created()), cmp.Compare(a.Metadata.Name, b.Metadata.Name))
	})
	if extra := len(files) - maxFiles; extra > 0 {
		files, ignored = files[:maxFiles], ignored+extra
	}
	left := maxAllMetadata
	for i := range files {
		for key, value := range files[i].Spec.Metadata {
			left -= len(key) + len(value)
		}
		if left < 0 {
			files[i].Spec.Metadata = nil
		}
	}
	return files, ignored
}

// unfinished reports whether a file is what a server that was killed has left of a snapshot: etcd saves into a file of this name, and
// renames it at the end. RKE2 and k3s list all files of their folder as successful.
func (f *file) unfinished() bool {
	return f.Spec.S3 == nil && strings.HasSuffix(f.Spec.SnapshotName, ".part")
}

// texts is the size of all texts but the metadata, and but the message, which is cut.
func (f *file) texts() int {
	size := len(f.Metadata.Name) + len(f.Spec.SnapshotName) + len(f.Spec.NodeName) + len(f.Spec.Location)
	if s3 := f.Spec.S3; s3 != nil {
		size += len(s3.Endpoint) + len(s3.EndpointCA) + len(s3.Bucket) + len(s3.Region) + len(s3.Prefix)
	}
	return size
}

// inOtherFolder reports whether an object in S3 is not in the folder of the cluster. RKE2 and k3s list all objects whose keys begin with
// the folder's name: those of the folder "prod" include "prod-2/a" and "prod/velero/b", which may be another cluster's, and cannot be
// restored by their name (https://github.com/k3s-io/k3s/issues/13934). The keys in a folder "/prod" begin with its slash.
func (f *file) inOtherFolder() bool {
	if f.Spec.S3 == nil {
		return false
	}
	key, is := strings.CutPrefix(f.Spec.Location, "s3://"+f.Spec.S3.Bucket+"/")
	if !is {
		return false
	}
	dir := path.Dir(key)
	return dir != "." && strings.Trim(dir, "/") != strings.Trim(path.Clean("/"+f.Spec.S3.Prefix), "/")
}

// hashOfToken is what a file may say of the token that it was saved with.
var hashOfToken = regexp.MustCompile(`^[0-9a-f]{8,64}$`)

// tokenHash is the beginning of the hash of the server token that the file was saved with; empty where the cluster does not say it.
func (f *file) tokenHash() string {
	for _, runtime := range []string{release.K3s, release.RKE2} {
		if hash := f.Metadata.Annotations["etcd."+runtime+".cattle.io/snapshot-token-hash"]; hashOfToken.MatchString(hash) {
			return hash
		}
	}
	return ""
}

// created is when the snapshot was taken, or tried.
func (f *file) created() time.Time {
	if f.Status.CreationTime != nil {
		return f.Status.CreationTime.Time
	}
	return f.Metadata.CreationTimestamp.Time
}
