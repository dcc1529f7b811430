package rkecontrolplane

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/util/informers"
	"github.com/drover-dev/drover/hub/util/objects"
)

// maxLive is for how many machines of a cluster objects are read one by one.
const maxLive = 50

// planLive decides again on what the API server has. Of servers, and of machines with a task, each object is read by its name; everything
// else is the cache's. A list past the cache would read all Machines of the namespace, and so cost each cluster the more, the more
// clusters there are.
func (r *Reconciler) planLive(ctx context.Context, s *scope) error {
	s.live = true
	now := newLiveObjects(r.Cache)
	if r.manager != nil {
		if err := r.known.await(ctx, r.Live, r.manager, client.ObjectKeyFromObject(s.controlPlane), s.cluster); err != nil {
			return err
		}
	}
	for {
		unread := now.unread(s)
		if r.manager != nil && len(unread) == 0 {
			return nil
		}
		all := r.manager == nil || len(unread) > maxLive
		var err error
		if all {
			err = r.loadAllLive(ctx, s)
		} else {
			err = now.load(ctx, r.Live, s, unread)
		}
		if err != nil {
			return err
		}
		s.nodes = nil // they remember Machines
		if err := r.planOnce(ctx, s); err != nil || all {
			return err
		}
		// There may be a task now that there was not, and servers that the cache has got meanwhile.
	}
}

// loadAllLive lists the machines past the cache, all of which the cache has to have.
func (r *Reconciler) loadAllLive(ctx context.Context, s *scope) error {
	if err := loadFrom(ctx, s, r.Live); err != nil || r.manager == nil {
		return err
	}
	for _, m := range s.machines {
		cached := &clusterv1.Machine{}
		found, err := objects.Get(ctx, r.Cache, client.ObjectKeyFromObject(m.machine), cached, client.UnsafeDisableDeepCopy)
		if err != nil {
			return err
		}
		if !found || cached.UID != m.machine.UID {
			return errBehind(&m.machine.ObjectMeta, "Machine")
		}
	}
	return nil
}

// liveObjects lists what a cache has, with some objects as they were read past it.
type liveObjects struct {
	client.Reader
	// What does not exist is nil.
	machines   map[client.ObjectKey]*clusterv1.Machine
	bootstraps map[client.ObjectKey]*rkev1.RKEBootstrap
	secrets    map[client.ObjectKey]*corev1.Secret
}

func newLiveObjects(cached client.Reader) *liveObjects {
	return &liveObjects{Reader: cached, machines: map[client.ObjectKey]*clusterv1.Machine{},
		bootstraps: map[client.ObjectKey]*rkev1.RKEBootstrap{}, secrets: map[client.ObjectKey]*corev1.Secret{}}
}

// unread returns the machines for which the API server counts and that were not read: all but workers without a task, of which the cache
// has what this hub has written. The RKEBootstraps of others, which have their roles, may exist by now.
func (l *liveObjects) unread(s *scope) []*clusterv1.Machine {
	var unread []*clusterv1.Machine
	for _, m := range s.machines {
		worker := m.inputs.Worker && !m.inputs.Etcd && !m.inputs.ControlPlane && !m.state.Init && !m.state.Task &&
			(m.secret == nil || m.secret.Labels[rkev1.InitNodeLabel] != "true") && (m.known == nil || !m.known.updated)
		if !worker {
			unread = append(unread, m.machine)
		}
	}
	return slices.DeleteFunc(append(unread, s.others...), func(m *clusterv1.Machine) bool {
		_, read := l.machines[client.ObjectKeyFromObject(m)]
		return read
	})
}

// load loads the machines of a cluster again, after it has read the objects of some.
func (l *liveObjects) load(ctx context.Context, live client.Reader, s *scope, machines []*clusterv1.Machine) error {
	for _, m := range machines {
		if err := l.readMachine(ctx, live, m); err != nil {
			return err
		}
	}
	return loadFrom(ctx, s, l)
}

func (l *liveObjects) readMachine(ctx context.Context, live client.Reader, cached *clusterv1.Machine) (err error) {
	key := client.ObjectKeyFromObject(cached)
	machine, err := getLive(ctx, live, key, &clusterv1.Machine{})
	if err != nil {
		return err
	}
	if machine != nil && machine.UID != cached.UID {
		// Nothing is done to a Machine that the cache does not have: it would be missing in decisions until the cache has it.
		return errBehind(&cached.ObjectMeta, "Machine")
	}
	if l.machines[key] = machine; machine == nil {
		return nil
	}
	name := machine.Spec.Bootstrap.ConfigRef.Name
	if name == "" {
		return nil
	}
	bootstrap := client.ObjectKey{Namespace: key.Namespace, Name: name}
	if l.bootstraps[bootstrap], err = getLive(ctx, live, bootstrap, &rkev1.RKEBootstrap{}); err != nil {
		return err
	}
	secret := client.ObjectKey{Namespace: key.Namespace, Name: rkev1.PlanSecretName(name)}
	l.secrets[secret], err = getLive(ctx, live, secret, &corev1.Secret{})
	return err
}

// getLive returns nil for what does not exist.
func getLive[T client.Object](ctx context.Context, live client.Reader, key client.ObjectKey, into T) (T, error) {
	var none T
	found, err := objects.Get(ctx, live, key, into)
	if err != nil || !found {
		return none, err
	}
	return into, nil
}

// Get implements client.Reader.
func (l *liveObjects) Get(ctx context.Context, key client.ObjectKey, into client.Object, opts ...client.GetOption) error {
	if bootstrap, ok := into.(*rkev1.RKEBootstrap); ok {
		if read, known := l.bootstraps[key]; known && read != nil {
			*bootstrap = *read
			return nil
		} else if known {
			return apierrors.NewNotFound(rkev1.GroupVersion.WithResource("rkebootstraps").GroupResource(), key.Name)
		}
	}
	return l.Reader.Get(ctx, key, into, opts...)
}

// List implements client.Reader.
func (l *liveObjects) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if err := l.Reader.List(ctx, list, opts...); err != nil {
		return err
	}
	options := (&client.ListOptions{}).ApplyOptions(opts)
	switch of := list.(type) {
	case *clusterv1.MachineList:
		of.Items = replace(of.Items, l.machines, options)
	case *rkev1.RKEBootstrapList:
		of.Items = replace(of.Items, l.bootstraps, options)
	case *corev1.SecretList:
		of.Items = replace(of.Items, l.secrets, options)
	}
	return nil
}

// replace returns listed objects with those that were read in their place. One that was read and is not in the list is added, and one that
// is not for the list any more is left out.
func replace[T any, P interface {
	*T
	client.Object
}](listed []T, read map[client.ObjectKey]P, options *client.ListOptions) []T {
	out := make([]T, 0, len(listed)+len(read))
	for i := range listed {
		if _, ok := read[client.ObjectKeyFromObject(P(&listed[i]))]; !ok {
			out = append(out, listed[i])
		}
	}
	for key, object := range read {
		if object == nil || key.Namespace != options.Namespace ||
			options.LabelSelector != nil && !options.LabelSelector.Matches(labels.Set(object.GetLabels())) {
			continue
		}
		out = append(out, *object)
	}
	return out
}

// knownMachines is of which clusters the cache has every Machine and RKEBootstrap that another hub may have begun with. What this hub does
// is done to Machines that its cache has.
type knownMachines struct {
	// reading is held by the one reconcile that reads what there is.
	reading sync.Mutex
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
)

// seen returns what is known of the Cluster of an RKEControlPlane, which is not paused.
func (k *knownMachines) seen(controlPlane client.ObjectKey, cluster *clusterv1.Cluster) *trust {
	now := &trust{uid: cluster.UID, since: cluster.ResourceVersion}
	before, ok := k.clusters.LoadOrStore(controlPlane, now)
	if !ok || before.(*trust).uid != cluster.UID {
		k.clusters.Store(controlPlane, now)
		return now
	}
	return before.(*trust)
}

// forget drops what is known of an RKEControlPlane that was deleted.
func (k *knownMachines) forget(controlPlane client.ObjectKey) { k.clusters.Delete(controlPlane) }

// await waits until the cache has what another hub may know of a cluster: it lists that past the cache, unless it did before, or the cache
// has come to the time at which the Cluster was not paused any more.
func (k *knownMachines) await(ctx context.Context, live client.Reader, cached cache.Cache, controlPlane client.ObjectKey,
	cluster *clusterv1.Cluster) error {
	t := k.seen(controlPlane, cluster)
	if k.all.Load() && t.confirmed.Load() {
		return nil
	}
	k.reading.Lock()
	defer k.reading.Unlock()
	var in []client.ListOption
	if k.all.Load() {
		if t.confirmed.Load() {
			return nil
		}
		if reached(ctx, cached, t.since) {
			t.confirmed.Store(true)
			return nil
		}
		in = append(in, client.InNamespace(controlPlane.Namespace))
	}
	// All that exists of those is listed.
	covered := k.covered(len(in) == 0, controlPlane.Namespace)
	for _, kind := range machineKinds {
		if err := awaitAll(ctx, live, cached, kind, in); err != nil {
			return err
		}
	}
	for _, t := range covered {
		t.confirmed.Store(true)
	}
	k.all.Store(true)
	return nil
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
var machineKinds = []machineKind{
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
	return !slices.ContainsFunc(machineKinds, func(kind machineKind) bool {
		reached, known := informers.Reached(ctx, cached, kind.object, version)
		return !reached || !known
	})
}

// awaitAll waits until a cache has the objects of a kind.
func awaitAll(ctx context.Context, live, cached client.Reader, kind machineKind, in []client.ListOption) error {
	listed, err := listAll(ctx, live, kind, in)
	if err != nil {
		return err
	}
	for i := range listed {
		if err := awaitObject(ctx, live, cached, kind, &listed[i]); err != nil {
			return err
		}
	}
	return nil
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

// errBehind is that of a cache that does not have an object as it is.
func errBehind(object *metav1.ObjectMeta, kind string) error {
	return apierrors.NewConflict(schema.GroupResource{Resource: kind}, object.Name, errors.New("the hub has not read its latest version yet"))
}
