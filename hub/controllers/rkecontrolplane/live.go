package rkecontrolplane

import (
	"context"
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
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
		wait, err := r.known.await(ctx, r.Live, r.manager, client.ObjectKeyFromObject(s.controlPlane), s.cluster)
		if err != nil {
			return err
		}
		if wait > 0 {
			s.rest = wait // longer than after other conflicts, which are no failures either
			return errBehind(&s.cluster.ObjectMeta, "Cluster")
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

// errBehind is that of a cache that does not have an object as it is.
func errBehind(object *metav1.ObjectMeta, kind string) error {
	return apierrors.NewConflict(schema.GroupResource{Resource: kind}, object.Name, errors.New("the hub has not read its latest version yet"))
}
