package preterminatehook

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kerrors "k8s.io/apimachinery/pkg/util/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/plan/release"
	"github.com/drover-dev/drover/hub/util/patch"
)

// Reconcile sets the hook on the etcd machines of a cluster, and removes it from those that are being deleted, one after the other.
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
	waiting := s.waiting()
	if len(waiting) == 0 {
		r.removing.Delete(s.key)
	} else {
		// Before anything further is read, so that no later change of it is missed; a change of a machine without etcd may have been until now.
		if _, known := r.removing.LoadOrStore(s.key, time.Time{}); !known {
			if err := readMachines(ctx, s, r.Client); err != nil {
				return ctrl.Result{}, err
			}
			waiting = s.waiting()
		}
		if len(waiting) == 0 {
			r.removing.Delete(s.key)
		} else {
			errs = append(errs, r.reconcileDeleted(ctx, s, waiting))
		}
	}
	for _, m := range s.machines {
		errs = append(errs, r.addHook(ctx, s, m))
	}
	return ctrl.Result{RequeueAfter: s.requeueAfter}, kerrors.NewAggregate(errs)
}

// addHook sets the hook on an etcd machine that is not being deleted. Without it, Cluster API would not wait.
func (r *Reconciler) addHook(ctx context.Context, s *scope, m *member) error {
	if !m.etcd || s.deletion() != "" || s.refused != nil {
		return nil
	}
	if !m.machine.DeletionTimestamp.IsZero() || annotations.HasPaused(m.machine) || hasHook(m.machine) {
		return nil
	}
	return r.patchHook(ctx, m.machine, func(machine *clusterv1.Machine) {
		metav1.SetMetaDataAnnotation(&machine.ObjectMeta, rkev1.RKEBootstrapCleanupPreTerminateHook, rkev1.RKEBootstrapCleanupPreTerminateOwner)
	})
}

// removeHook lets Cluster API go on with the deletion.
func (r *Reconciler) removeHook(ctx context.Context, machine *clusterv1.Machine) error {
	return r.patchHook(ctx, machine, func(machine *clusterv1.Machine) {
		delete(machine.Annotations, rkev1.RKEBootstrapCleanupPreTerminateHook)
	})
}

func (r *Reconciler) patchHook(ctx context.Context, machine *clusterv1.Machine, change func(*clusterv1.Machine)) error {
	changed := machine.DeepCopy()
	change(changed)
	if err := r.Client.Patch(ctx, changed, client.MergeFrom(machine), fieldOwner); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("updating the pre-terminate hook of Machine %s: %w", machine.Name, err)
	}
	return nil
}

// reconcileDeleted evaluates the deleted members in the order of their deletion. A cluster that answers and does not list its Nodes, as one
// without a quorum, must not keep machines that need no removal from etcd, as when the cluster itself is deleted.
func (r *Reconciler) reconcileDeleted(ctx context.Context, s *scope, waiting []*member) error {
	if err := r.readState(ctx, s, r.Cache, r.cachedNodes); err != nil {
		return err
	}
	untilRefresh := r.untilRefresh(s.key)
	errs := []error{s.nodesErr}
	for _, m := range waiting {
		d := evaluate(s.state, m.candidate())
		if d.action == requestRemoval {
			// Caches may not have seen the last removal yet.
			live, current, err := r.reevaluate(ctx, s.key, m, r.liveNodes)
			if d = current.decision; err == nil && d.action == requestRemoval {
				err = r.requestRemoval(ctx, live, current.node)
			}
			if err != nil {
				errs = append(errs, err, r.updateCondition(ctx, m.machine, removalFailed(err)))
				continue
			}
		}
		if d.action == keepHook && d.reason == reasonRemoving {
			if untilRefresh > 0 {
				d.requeueAfter = min(d.requeueAfter, untilRefresh)
			} else {
				r.removing.Store(s.key, r.Now())
				d = r.refresh(ctx, s.key, m, d)
			}
		}
		if d.requeueAfter > 0 {
			s.requeueAfter = min(cmp.Or(s.requeueAfter, d.requeueAfter), d.requeueAfter)
		}
		errs = append(errs, r.updateCondition(ctx, m.machine, d))
		if d.action == removeHook {
			errs = append(errs, r.removeHook(ctx, m.machine))
		}
	}
	return kerrors.NewAggregate(errs)
}

// untilRefresh is how long to wait before the Nodes are read by another connection again: agents report all the time.
func (r *Reconciler) untilRefresh(key client.ObjectKey) time.Duration {
	last, _ := r.removing.Load(key)
	at, _ := last.(time.Time)
	return at.Add(refreshInterval).Sub(r.Now())
}

// refresh evaluates a member whose removal was requested again, on what another connection shows. If that fails, the earlier decision
// holds.
func (r *Reconciler) refresh(ctx context.Context, key client.ObjectKey, m *member, earlier decision) decision {
	live, current, err := r.reevaluate(ctx, key, m, r.nodesByNewConnection)
	if err != nil || !live.state.connected {
		ctrl.LoggerFrom(ctx).V(1).Info("Reading the Nodes by another connection failed",
			"Machine", client.ObjectKeyFromObject(m.machine), "err", err)
		return earlier
	}
	if current.action == requestRemoval {
		return earlier
	}
	return current.decision
}

// reevaluated is a decision on what was read past the caches; node is nil where there is none.
type reevaluated struct {
	decision
	node *corev1.Node
}

// reevaluate evaluates a member on what is read past the caches.
func (r *Reconciler) reevaluate(ctx context.Context, key client.ObjectKey, m *member, nodes nodeLister) (*scope, reevaluated, error) {
	live := &scope{key: key}
	if err := readCluster(ctx, live, r.Live); err != nil {
		return live, reevaluated{}, err
	}
	if live.paused() {
		return live, reevaluated{decision: *decide(keepHook, clusterv1.PausedReason, "Waiting for the Cluster to be unpaused")}, nil
	}
	if err := readMachines(ctx, live, r.Live); err != nil {
		return live, reevaluated{}, err
	}
	if err := r.readState(ctx, live, r.Live, nodes); err != nil {
		return live, reevaluated{}, err
	}
	if live.nodesErr != nil {
		return live, reevaluated{}, live.nodesErr
	}
	i := slices.IndexFunc(live.machines, func(other *member) bool { return other.machine.UID == m.machine.UID })
	if i < 0 {
		return live, reevaluated{decision: *decide(removeHook, reasonRemoved, "Machine is gone")}, nil
	}
	return live, reevaluated{decision: evaluate(live.state, live.machines[i].candidate()), node: live.machines[i].node}, nil
}

// requestRemoval sets the annotation of the Node by which k3s and RKE2 remove an etcd member.
func (r *Reconciler) requestRemoval(ctx context.Context, s *scope, node *corev1.Node) error {
	remote, err := r.ClusterCache.GetClient(ctx, s.key)
	if err != nil {
		return fmt.Errorf("connecting to the cluster: %w", err)
	}
	changed := node.DeepCopy()
	key := fmt.Sprintf(rkev1.EtcdRemoveAnnotationFormat, release.Runtime(s.controlPlane.Spec.DesiredVersion()))
	metav1.SetMetaDataAnnotation(&changed.ObjectMeta, key, "true")
	if err := remote.Patch(ctx, changed, client.MergeFrom(node)); err != nil {
		return fmt.Errorf("requesting the removal of the etcd member on Node %s: %w", node.Name, err)
	}
	ctrl.LoggerFrom(ctx).Info("Requested the removal of an etcd member", "Node", node.Name)
	return nil
}

// updateCondition writes the condition EtcdMemberRemoved of a Machine.
func (r *Reconciler) updateCondition(ctx context.Context, machine *clusterv1.Machine, d decision) error {
	condition := metav1.Condition{Type: rkev1.EtcdMemberRemovedCondition, Status: metav1.ConditionFalse, Reason: d.reason, Message: d.message}
	if d.action == removeHook {
		condition.Status = metav1.ConditionTrue
	}
	return patch.Conditions(ctx, r.Client, machine, fieldOwner, condition)
}

func hasHook(machine *clusterv1.Machine) bool {
	_, has := machine.Annotations[rkev1.RKEBootstrapCleanupPreTerminateHook]
	return has
}

// byDeletion orders members by their deletion.
func byDeletion(a, b *member) int {
	return cmp.Or(a.machine.DeletionTimestamp.Compare(b.machine.DeletionTimestamp.Time), strings.Compare(a.machine.Name, b.machine.Name))
}
