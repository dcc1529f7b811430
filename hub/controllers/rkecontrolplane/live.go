package rkecontrolplane

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/util/objects"
)

// loadLive reads the machines again, so that what harms a server is decided on what the API server has. Of servers, and of machines with a
// task, each object is read by its name; everything else is the cache's. A list past the cache would read all Machines of the namespace,
// and so cost each cluster the more, the more clusters there are.
func (r *Reconciler) loadLive(ctx context.Context, s *scope) error {
	if !r.cached {
		return loadFrom(ctx, s, r.Live)
	}
	if err := r.known.await(ctx, r.Live, r.Cache); err != nil {
		return err
	}
	now := newLiveObjects(r.Cache)
	for {
		read, err := now.read(ctx, r.Live, s)
		if err != nil || !read {
			return err
		}
		// This may find servers that the cache has got meanwhile.
		if err := loadFrom(ctx, s, now); err != nil {
			return err
		}
	}
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

// read reads the objects of those machines for which they count and were not read before. It returns whether there were any.
func (l *liveObjects) read(ctx context.Context, live client.Reader, s *scope) (bool, error) {
	var found bool
	of := func(machine *clusterv1.Machine) error {
		if _, before := l.machines[client.ObjectKeyFromObject(machine)]; before {
			return nil
		}
		found = true
		return l.readMachine(ctx, live, machine)
	}
	for _, m := range s.machines {
		if !m.inputs.Etcd && !m.inputs.ControlPlane && !m.state.Init && !m.state.Task {
			continue
		}
		if err := of(m.machine); err != nil {
			return false, err
		}
	}
	for _, m := range s.others { // their RKEBootstraps, which have the roles, may exist by now
		if err := of(m); err != nil {
			return false, err
		}
	}
	return found, nil
}

func (l *liveObjects) readMachine(ctx context.Context, live client.Reader, cached *clusterv1.Machine) (err error) {
	key := client.ObjectKeyFromObject(cached)
	if l.machines[key], err = getLive(ctx, live, key, &clusterv1.Machine{}); err != nil || l.machines[key] == nil {
		return err
	}
	name := l.machines[key].Spec.Bootstrap.ConfigRef.Name
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

// knownMachines is whether the cache has every Machine that another hub may have begun a cluster with, or whose etcd it may have restarted,
// before this one began to reconcile. What this hub does itself is done to machines that its cache has.
type knownMachines struct{ all atomic.Bool }

const (
	// machinesPage is how many Machines are listed at once.
	machinesPage = 500
	// catchUpTime is how long a reconcile waits for the cache, which is behind for a second at most on a hub that is not overloaded.
	catchUpTime, catchUpInterval = 10 * time.Second, 100 * time.Millisecond
)

// errBehind is the error of a reconcile that tries again later.
var errBehind = errors.New("the hub has not read all Machines yet; trying again")

// await reads the names of all Machines past the cache once, and waits until the cache has them.
func (k *knownMachines) await(ctx context.Context, live, cached client.Reader) error {
	if k.all.Load() {
		return nil
	}
	page := &metav1.PartialObjectMetadataList{}
	page.SetGroupVersionKind(clusterv1.GroupVersion.WithKind("MachineList"))
	for {
		if err := live.List(ctx, page, client.Limit(machinesPage), client.Continue(page.Continue)); err != nil {
			return fmt.Errorf("listing all Machines: %w", err)
		}
		for i := range page.Items {
			if err := awaitMachine(ctx, live, cached, &page.Items[i]); err != nil {
				return err
			}
		}
		if page.Continue == "" {
			break
		}
	}
	k.all.Store(true)
	return nil
}

func awaitMachine(ctx context.Context, live, cached client.Reader, listed *metav1.PartialObjectMetadata) error {
	key := client.ObjectKeyFromObject(listed)
	err := wait.PollUntilContextTimeout(ctx, catchUpInterval, catchUpTime, true, func(ctx context.Context) (bool, error) {
		machine := &clusterv1.Machine{}
		found, err := objects.Get(ctx, cached, key, machine, client.UnsafeDisableDeepCopy)
		if err != nil || found && machine.UID == listed.UID {
			return err == nil, err
		}
		// It may be gone, or be another one by now.
		now, err := getLive(ctx, live, key, &clusterv1.Machine{})
		return err == nil && (now == nil || now.UID != listed.UID), err
	})
	if wait.Interrupted(err) {
		return errBehind
	}
	return err
}
