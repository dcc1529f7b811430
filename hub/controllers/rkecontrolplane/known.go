package rkecontrolplane

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/util/informers"
	"github.com/drover-dev/drover/hub/util/objects"
	"github.com/drover-dev/drover/hub/util/pace"
)

// knownMachines is of which clusters the cache has every Machine and RKEBootstrap that another hub may have begun with. What this hub does
// is done to Machines that its cache has.
type knownMachines struct {
	// reading is held by the one reconcile that reads what there is, lists limits the time for that.
	reading sync.Mutex
	lists   pace.Share
	// all is set once the cache has had all that was there when this hub began to decide.
	all atomic.Bool
	// clusters has a *trust for the key of each RKEControlPlane.
	clusters sync.Map
}

// trust is what is known of a Cluster that is not paused. One that another hub hands over is paused until all of it exists, and is another
// Cluster for this hub.
type trust struct {
	uid types.UID
	// since is the version in which the Cluster was seen first.
	since     string
	confirmed atomic.Bool
}

const (
	// listPage is how many objects are listed at once.
	listPage = 500
	// catchUpTime is how long a reconcile waits for the cache, which is behind for a second at most on a hub that is not overloaded.
	catchUpTime, catchUpInterval = 10 * time.Second, 100 * time.Millisecond
	// maxListWait is how long a reconcile that is not to list waits before it looks at the cache again.
	maxListWait = 2 * time.Second
)

// seen returns what is known of the Cluster of an RKEControlPlane, which is not paused.
func (k *knownMachines) seen(controlPlane client.ObjectKey, cluster *clusterv1.Cluster) *trust {
	if before, ok := k.clusters.Load(controlPlane); ok && before.(*trust).uid == cluster.UID {
		return before.(*trust)
	}
	now := &trust{uid: cluster.UID, since: cluster.ResourceVersion}
	k.clusters.Store(controlPlane, now)
	return now
}

// forget drops what is known of an RKEControlPlane that was deleted.
func (k *knownMachines) forget(controlPlane client.ObjectKey) { k.clusters.Delete(controlPlane) }

// await waits until the cache has what another hub may know of a cluster: it lists that past the cache, unless it did before, or the cache
// has come to the time at which the Cluster was not paused any more. On a hub that is so busy that its cache is behind, others list first:
// then it returns how long to wait before the next attempt, by which the cache may have come that far.
func (k *knownMachines) await(ctx context.Context, live client.Reader, cached cache.Cache, controlPlane client.ObjectKey,
	cluster *clusterv1.Cluster) (wait time.Duration, err error) {
	t := k.seen(controlPlane, cluster)
	if k.all.Load() && t.confirmed.Load() {
		return 0, nil
	}
	k.reading.Lock()
	defer k.reading.Unlock()
	var in []client.ListOption
	if k.all.Load() {
		if t.confirmed.Load() {
			return 0, nil
		}
		if reached(ctx, cached, t.since) {
			t.confirmed.Store(true)
			return 0, nil
		}
		in = append(in, client.InNamespace(controlPlane.Namespace))
	}
	// All that exists of those is listed.
	covered := k.covered(len(in) == 0, controlPlane.Namespace)
	var listed [len(machineKinds)][]metav1.ObjectMeta
	wait, err = k.lists.Do(func() (err error) {
		for i, kind := range machineKinds {
			if listed[i], err = listAll(ctx, live, kind, in); err != nil {
				return err
			}
		}
		return nil
	})
	if wait > 0 || err != nil {
		return min(wait, maxListWait), err
	}
	for i, kind := range machineKinds {
		for j := range listed[i] {
			if err := awaitObject(ctx, live, cached, kind, &listed[i][j]); err != nil {
				return 0, err
			}
		}
	}
	for _, t := range covered {
		t.confirmed.Store(true)
	}
	k.all.Store(true)
	return 0, nil
}

// covered returns the clusters of a namespace, or all.
func (k *knownMachines) covered(all bool, namespace string) (covered []*trust) {
	k.clusters.Range(func(key, t any) bool {
		if all || key.(client.ObjectKey).Namespace == namespace {
			covered = append(covered, t.(*trust))
		}
		return true
	})
	return covered
}

// machineKinds are those that a cluster begins with.
var machineKinds = [...]machineKind{
	{"Machine", clusterv1.GroupVersion, &clusterv1.Machine{}},
	{"RKEBootstrap", rkev1.GroupVersion, &rkev1.RKEBootstrap{}},
}

type machineKind struct {
	name    string
	version schema.GroupVersion
	object  client.Object
}

// reached reports whether the cache is known to have all that existed at a version.
func reached(ctx context.Context, cached cache.Informers, version string) bool {
	return !slices.ContainsFunc(machineKinds[:], func(kind machineKind) bool {
		reached, known := informers.Reached(ctx, cached, kind.object, version)
		return !reached || !known
	})
}

// listAll lists the metadata of the objects of a kind.
func listAll(ctx context.Context, live client.Reader, kind machineKind, in []client.ListOption) (all []metav1.ObjectMeta, _ error) {
	page := &metav1.PartialObjectMetadataList{}
	for {
		page.SetGroupVersionKind(kind.version.WithKind(kind.name + "List"))
		if err := live.List(ctx, page, append(in, client.Limit(listPage), client.Continue(page.Continue))...); err != nil {
			return nil, fmt.Errorf("listing objects of kind %s: %w", kind.name, err)
		}
		for i := range page.Items {
			o := &page.Items[i]
			all = append(all, metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion})
		}
		if page.Continue == "" {
			return all, nil
		}
	}
}

// awaitObject waits until a cache has an object, in the version that was listed or a later one, or until it does not exist any more.
func awaitObject(ctx context.Context, live, cached client.Reader, kind machineKind, listed *metav1.ObjectMeta) error {
	key := client.ObjectKey{Namespace: listed.Namespace, Name: listed.Name}
	for deadline := time.Now().Add(catchUpTime); ; {
		object := kind.object.DeepCopyObject().(client.Object)
		found, err := objects.Get(ctx, cached, key, object, client.UnsafeDisableDeepCopy)
		if err != nil || found && object.GetUID() == listed.UID && !olderThan(object, listed) {
			return err
		}
		now, err := getLive(ctx, live, key, kind.object.DeepCopyObject().(client.Object))
		if err != nil || now == nil || now.GetUID() != listed.UID {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the hub has not read the latest version of %s %s for %s; nothing that restarts a server is done until it has",
				kind.name, key, catchUpTime)
		}
		select {
		case <-time.After(catchUpInterval):
		case <-ctx.Done():
			return fmt.Errorf("waiting for the hub to read %s %s: %w", kind.name, key, context.Cause(ctx))
		}
	}
}

// olderThan reports whether an object is an earlier version than was listed. Versions that cannot be compared are not.
func olderThan(object client.Object, listed *metav1.ObjectMeta) bool {
	order, err := resourceversion.CompareResourceVersion(object.GetResourceVersion(), listed.ResourceVersion)
	return err == nil && order < 0
}
