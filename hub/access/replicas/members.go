package replicas

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// ReplicaLabel is on the Leases of replicas, and on no others.
	ReplicaLabel = "rke.cattle.io/hub-replica"
	// AddressAnnotation holds host:port of the replica's gateway.
	AddressAnnotation = "rke.cattle.io/hub-address"
)

const (
	// A Lease is renewed every renewEvery, and not believed any more when it has not been for leaseDuration.
	renewEvery    = 5 * time.Second
	leaseDuration = 15 * time.Second
	// staleAfter is when the Lease of a replica that was killed is removed by another one.
	staleAfter = 10 * time.Minute
	// leaseTimeout bounds a request about a Lease.
	leaseTimeout = 4 * time.Second
)

// Membership keeps this replica's Lease and passes those of others to the Directory. It is a manager.Runnable that runs on every replica.
type Membership struct {
	Directory *Directory
	// Client writes, Cache watches Leases with ReplicaLabel.
	Client client.Client
	Cache  cache.Cache
	// Namespace is where the Leases are, Address is where others reach this replica's gateway.
	Namespace, Address string
	Logger             logr.Logger

	mu sync.Mutex
	// seen is what was last seen of each Lease, and when, by this replica's clock: clocks of others are not compared with.
	seen map[string]observation
}

type observation struct {
	address string
	renewed metav1.MicroTime
	at      time.Time
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: every replica has a Lease.
func (m *Membership) NeedLeaderElection() bool { return false }

// Start keeps the Lease until ctx ends, then takes it away.
func (m *Membership) Start(ctx context.Context) error {
	informer, err := m.Cache.GetInformer(ctx, &coordinationv1.Lease{})
	if err != nil {
		return fmt.Errorf("watching the Leases of replicas: %w", err)
	}
	registration, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { m.observe(obj, false) },
		UpdateFunc: func(_, obj any) { m.observe(obj, false) },
		DeleteFunc: func(obj any) { m.observe(obj, true) },
	})
	if err != nil {
		return fmt.Errorf("watching the Leases of replicas: %w", err)
	}
	defer func() { _ = informer.RemoveEventHandler(registration) }()

	ticker := time.NewTicker(renewEvery)
	defer ticker.Stop()
	failed := false
	for {
		err := m.renew(ctx)
		if err != nil && ctx.Err() == nil && !failed {
			m.Logger.Error(err, "Could not renew this replica's Lease, others may not find it; trying again", "every", renewEvery.String())
		}
		failed = err != nil
		m.updateMembers()
		m.removeStale(ctx)
		select {
		case <-ctx.Done():
			m.leave(context.WithoutCancel(ctx))
			return nil
		case <-ticker.C:
		}
	}
}

func leaseName(replica string) string { return "drover-replica-" + replica }

func (m *Membership) leaseName() string { return leaseName(m.Directory.opts.ReplicaID) }

func (m *Membership) lease() *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: m.Namespace, Name: m.leaseName(),
			Labels:      map[string]string{ReplicaLabel: "true"},
			Annotations: map[string]string{AddressAnnotation: m.Address},
		},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity:       new(m.Directory.opts.ReplicaID),
			LeaseDurationSeconds: ptr.To(int32(leaseDuration / time.Second)),
			RenewTime:            new(metav1.NowMicro()),
		},
	}
}

// renew writes the Lease as it must be, whatever it is now: nobody else has a word in it.
func (m *Membership) renew(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, leaseTimeout)
	defer cancel()
	lease := m.lease()
	empty := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: lease.Namespace, Name: lease.Name}}
	err := m.Client.Patch(ctx, lease, client.MergeFrom(empty))
	if apierrors.IsNotFound(err) {
		err = m.Client.Create(ctx, m.lease())
	}
	if err != nil {
		return fmt.Errorf("renewing Lease %s/%s: %w", m.Namespace, m.leaseName(), err)
	}
	return nil
}

func (m *Membership) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, leaseTimeout)
	defer cancel()
	if err := m.Client.Delete(ctx, m.lease()); client.IgnoreNotFound(err) != nil {
		m.Logger.Info("Could not remove this replica's Lease, another replica will", "lease", m.leaseName(), "reason", err.Error())
	}
}

// observe notes that a Lease was renewed, or is gone.
func (m *Membership) observe(obj any, gone bool) {
	if tombstone, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
		obj = tombstone.Obj
	}
	lease, ok := obj.(*coordinationv1.Lease)
	if !ok || lease.Namespace != m.Namespace || lease.Labels[ReplicaLabel] == "" || ptr.Deref(lease.Spec.HolderIdentity, "") == "" {
		return
	}
	id, renewed := *lease.Spec.HolderIdentity, ptr.Deref(lease.Spec.RenewTime, metav1.MicroTime{})
	m.mu.Lock()
	last, known := m.seen[id]
	switch {
	case gone:
		delete(m.seen, id)
	case !known || !last.renewed.Equal(&renewed) || last.address != lease.Annotations[AddressAnnotation]:
		if m.seen == nil {
			m.seen = map[string]observation{}
		}
		m.seen[id] = observation{address: lease.Annotations[AddressAnnotation], renewed: renewed, at: time.Now()}
	}
	m.mu.Unlock()
	if known == gone {
		m.updateMembers()
	}
}

// updateMembers gives the Directory the replicas whose Leases are good.
func (m *Membership) updateMembers() {
	members := []Member{}
	m.mu.Lock()
	for _, id := range slices.Sorted(maps.Keys(m.seen)) {
		if o := m.seen[id]; o.address != "" && time.Since(o.at) < leaseDuration {
			members = append(members, Member{ID: id, Address: o.address})
		}
	}
	m.mu.Unlock()
	m.Directory.SetMembers(members)
}

// removeStale removes the Leases of replicas that were killed.
func (m *Membership) removeStale(ctx context.Context) {
	stale := []string{}
	m.mu.Lock()
	for id, o := range m.seen {
		if time.Since(o.at) > staleAfter {
			stale = append(stale, id)
		}
	}
	m.mu.Unlock()
	for _, id := range stale {
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: leaseName(id)}}
		if err := m.Client.Delete(ctx, lease); client.IgnoreNotFound(err) != nil && ctx.Err() == nil {
			m.Logger.V(1).Info("Could not remove the Lease of a replica that is gone", "lease", lease.Name, "reason", err.Error())
		}
	}
}
