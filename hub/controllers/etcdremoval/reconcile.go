package etcdremoval

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	kerrors "k8s.io/apimachinery/pkg/util/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// Reconcile holds the live members of a cluster, and lets go of those that are being deleted, one after the other.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	s := &scope{key: req.NamespacedName}
	if err := readCluster(ctx, s, r.Client); err != nil {
		return ctrl.Result{}, err
	}
	if s.paused() {
		return ctrl.Result{}, nil
	}
	if err := readMachines(ctx, s, r.Client); err != nil {
		return ctrl.Result{}, err
	}
	var errs []error
	held := s.held()
	if len(held) == 0 {
		r.removing.Delete(s.key)
	} else {
		// Before anything is read, so that no change of it is missed from here on.
		r.removing.LoadOrStore(s.key, time.Time{})
		errs = append(errs, r.letGo(ctx, s, held))
	}
	for _, m := range s.machines {
		errs = append(errs, r.hold(ctx, s, m))
	}
	return ctrl.Result{RequeueAfter: s.requeueAfter}, kerrors.NewAggregate(errs)
}

// hold sets the hook on a live member. Without it, Cluster API would not wait.
func (r *Reconciler) hold(ctx context.Context, s *scope, m *member) error {
	machine := m.machine
	if !m.etcd || s.going() != "" || !machine.DeletionTimestamp.IsZero() || annotations.HasPaused(machine) || hasHook(machine) {
		return nil
	}
	before := machine.DeepCopy()
	machine = machine.DeepCopy()
	if machine.Annotations == nil {
		machine.Annotations = map[string]string{}
	}
	machine.Annotations[rkev1.RKEBootstrapCleanupPreTerminateHook] = rkev1.RKEBootstrapCleanupPreTerminateOwner
	if err := r.Client.Patch(ctx, machine, client.MergeFrom(before), fieldOwner); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("setting the pre-terminate hook of Machine %s: %w", machine.Name, err)
	}
	return nil
}

// free takes the hook away, and Cluster API goes on.
func (r *Reconciler) free(ctx context.Context, machine *clusterv1.Machine) error {
	before := machine.DeepCopy()
	machine = machine.DeepCopy()
	delete(machine.Annotations, rkev1.RKEBootstrapCleanupPreTerminateHook)
	if err := r.Client.Patch(ctx, machine, client.MergeFrom(before), fieldOwner); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("removing the pre-terminate hook of Machine %s: %w", machine.Name, err)
	}
	return nil
}

// letGo takes the members that are to go in the order in which they were deleted.
func (r *Reconciler) letGo(ctx context.Context, s *scope, held []*member) error {
	if err := r.readSituation(ctx, s, r.Cache, r.nodes); err != nil {
		return err
	}
	left := r.lookIn(s.key)
	var errs []error
	for _, m := range held {
		v := judge(s.situation, m.candidate())
		if v.action == ask {
			var err error
			if v, err = r.askLive(ctx, s.key, m); err != nil {
				errs = append(errs, err)
				continue
			}
		}
		if v.action == keep && v.reason == reasonRemoving {
			if left > 0 {
				v.again = min(v.again, left)
			} else {
				r.removing.Store(s.key, r.Now())
				v = r.lookAnew(ctx, s.key, m, v)
			}
		}
		if v.again > 0 && (s.requeueAfter == 0 || v.again < s.requeueAfter) {
			s.requeueAfter = v.again
		}
		errs = append(errs, r.report(ctx, m.machine, v))
		if v.action == free {
			errs = append(errs, r.free(ctx, m.machine))
		}
	}
	return kerrors.NewAggregate(errs)
}

// lookIn is how long to wait before the cluster is looked at through another connection again. Agents report all the time, and each look reads all
// that there is past the caches.
func (r *Reconciler) lookIn(key client.ObjectKey) time.Duration {
	last, _ := r.removing.Load(key)
	at, _ := last.(time.Time)
	return at.Add(lookInterval).Sub(r.Now())
}

// lookAnew decides once more about a member that the cluster was asked to remove, by what another connection shows. Where that shows nothing,
// what was decided holds.
func (r *Reconciler) lookAnew(ctx context.Context, key client.ObjectKey, m *member, decided verdict) verdict {
	live := &scope{key: key}
	err := errors.Join(readCluster(ctx, live, r.Live), readMachines(ctx, live, r.Live))
	if err == nil {
		err = r.readSituation(ctx, live, r.Live, r.freshNodes)
	}
	i := slices.IndexFunc(live.machines, func(other *member) bool { return other.machine.UID == m.machine.UID })
	if err != nil || i < 0 || !live.situation.connected {
		ctrl.LoggerFrom(ctx).V(1).Info("Cannot look at the Nodes through another connection", "Machine", client.ObjectKeyFromObject(m.machine), "err", err)
		return decided
	}
	if v := judge(live.situation, live.machines[i].candidate()); v.action != ask {
		return v
	}
	return decided
}

// askLive decides once more on what is true at this moment, since a cache may not have seen the last removal yet, and then asks.
func (r *Reconciler) askLive(ctx context.Context, key client.ObjectKey, m *member) (verdict, error) {
	live := &scope{key: key}
	if err := readCluster(ctx, live, r.Live); err != nil {
		return verdict{}, err
	}
	if live.paused() {
		return verdict{action: keep, reason: clusterv1.PausedReason, message: "Waiting for the Cluster to be paused no longer"}, nil
	}
	if err := readMachines(ctx, live, r.Live); err != nil {
		return verdict{}, err
	}
	if err := r.readSituation(ctx, live, r.Live, r.liveNodes); err != nil {
		return verdict{}, err
	}
	i := slices.IndexFunc(live.machines, func(other *member) bool { return other.machine.UID == m.machine.UID })
	if i < 0 {
		return verdict{action: free, reason: reasonRemoved, message: "The Machine is gone"}, nil
	}
	v := judge(live.situation, live.machines[i].candidate())
	if v.action != ask {
		return v, nil
	}
	return v, r.ask(ctx, live, live.machines[i])
}

// ask sets the annotation of the Node by which the cluster is asked to remove a member.
func (r *Reconciler) ask(ctx context.Context, s *scope, m *member) error {
	remote, err := r.ClusterCache.GetClient(ctx, s.key)
	if err != nil {
		return fmt.Errorf("connecting to the cluster: %w", err)
	}
	key := fmt.Sprintf(rkev1.EtcdRemoveAnnotationFormat, s.runtime())
	node := m.node.DeepCopy()
	if node.Annotations == nil {
		node.Annotations = map[string]string{}
	}
	node.Annotations[key] = "true"
	if err := remote.Patch(ctx, node, client.MergeFrom(m.node)); err != nil {
		return fmt.Errorf("asking the cluster to remove the member of etcd on Node %s: %w", node.Name, err)
	}
	ctrl.LoggerFrom(ctx).Info("Asked the cluster to remove a member of etcd", "Machine", client.ObjectKeyFromObject(m.machine), "Node", node.Name)
	return nil
}

func hasHook(machine *clusterv1.Machine) bool {
	_, has := machine.Annotations[rkev1.RKEBootstrapCleanupPreTerminateHook]
	return has
}

// byDeletion sorts members in the order in which they were deleted.
func byDeletion(a, b *member) int {
	if c := a.machine.DeletionTimestamp.Compare(b.machine.DeletionTimestamp.Time); c != 0 {
		return c
	}
	return strings.Compare(a.machine.Name, b.machine.Name)
}
