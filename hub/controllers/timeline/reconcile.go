package timeline

import (
	"context"
	"errors"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/util/inprogress"
	"github.com/drover-dev/drover/hub/util/timelines"
)

// A cluster is reconciled at most once per reconcileInterval, and less often the larger its timeline is: one more reconcileInterval for
// each reconcileStep bytes, since reading a large cluster costs time too.
const (
	reconcileInterval = time.Second
	reconcileStep     = 128 << 10
)

// recorded is what a reconcile has recorded, the less to the more important.
type recorded int

const (
	nothing recorded = iota
	// progress is that something is in another phase.
	progress
	// outcome is that a machine has failed, that the cluster has failed or is ready, or anything about an operation.
	outcome
)

// saveInterval is the least time between two writes of the timeline of a cluster with so many machines: five seconds, and for progress more
// where it has many machines, each twenty as much as another timeline that is to be written as well. In an upgrade machines change phases
// each second, all over the parts of the timeline; a hub that ends loses the phases that began and ended since the last write, and no
// Event.
func (r recorded) saveInterval(machines, others int) time.Duration {
	if r == outcome {
		return inprogress.Delay(5*time.Second, 0)
	}
	return inprogress.Delay(5*time.Second, machines/20+others)
}

// Reconcile records what has changed since the last reconcile. Changes within the interval are recorded together.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	m, now := r.stateOf(req.NamespacedName), r.Now()
	if wait := m.next.Sub(now); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	s, err := r.load(ctx, req.NamespacedName)
	if err != nil {
		return ctrl.Result{}, err
	}
	if s == nil {
		r.forget(req.NamespacedName)
		return ctrl.Result{}, nil
	}
	ended := r.takeEnded(req.NamespacedName)
	if s.addEnded(ended); len(ended) > 0 {
		m.saved = time.Time{} // they exist nowhere else
	}
	m.next = now.Add(reconcileInterval * time.Duration(1+m.size/reconcileStep))
	if m.record == nil {
		if m.record, m.written, err = r.read(ctx, req.NamespacedName, now); err != nil {
			r.keepEnded(req.NamespacedName, ended...)
			return ctrl.Result{}, err
		}
	}
	result, err := r.reconcile(ctx, req, s, m, now)
	if err == nil {
		return result, nil
	}
	r.keepEnded(req.NamespacedName, ended...)
	if wait := r.untilSave(req, s, m, now); m.unsaved != nothing && wait > 0 {
		// The back-off after a failure may be longer than what is recorded may stay unsaved.
		ctrl.LoggerFrom(ctx).Error(err, "Writing Events or the provisioning log failed, retrying")
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	return result, err
}

// untilSave is how long to wait before what is recorded is written.
func (r *Reconciler) untilSave(req ctrl.Request, s *scope, m *clusterState, now time.Time) time.Duration {
	return m.saved.Add(m.unsaved.saveInterval(len(s.machines), r.unsaved.Others(req.NamespacedName))).Sub(now)
}

func (r *Reconciler) reconcile(ctx context.Context, req ctrl.Request, s *scope, m *clusterState, now time.Time) (ctrl.Result, error) {
	result := ctrl.Result{}
	transitions := m.transitions(s.objects(), m.record.Observed.Time, now)
	// An Event that cannot be written, as for a quota of the namespace, must not keep the timeline at what was true before it.
	created, eventsErr := r.createEvents(ctx, s, m, transitions, now)
	if created < len(transitions) {
		result.RequeueAfter = reconcileInterval
	}
	changed := s.update(m.record, now)
	if changed != nothing || created > 0 {
		m.unsaved = max(m.unsaved, changed, progress)
		if created == len(transitions) {
			m.record.Observed = metav1.NewTime(now.Truncate(time.Second))
		}
	}
	r.unsaved.Set(req.NamespacedName, m.unsaved != nothing)
	if wait := r.untilSave(req, s, m, now); m.unsaved != nothing && wait > 0 {
		if result.RequeueAfter == 0 {
			result.RequeueAfter = wait
		}
	} else if m.unsaved != nothing {
		if err := r.write(ctx, req.NamespacedName, s, m); err != nil {
			return result, errors.Join(eventsErr, err)
		}
		m.unsaved, m.saved = nothing, now
		r.unsaved.Set(req.NamespacedName, false)
	}
	return result, errors.Join(eventsErr, r.writeLog(ctx, s, m, now))
}

// update puts the cluster, its machines and its operations into their present phases, and returns what that changed in the record.
func (s *scope) update(r *timelines.Record, now time.Time) (changed recorded) {
	cluster := s.clusterObject()
	phase := s.clusterPhase()
	phase.Message = s.publicMessage(phase.Name, phase.Message)
	index := r.Index()
	if r.Subject(index, timelines.KindCluster, cluster).SetPhase(phase, now) {
		changed = progress
		if phase.Outcome != timelines.OutcomeRunning {
			changed = outcome
		}
	}

	exists := map[string]bool{string(cluster.GetUID()): true}
	for i := range s.machines {
		m := &s.machines[i]
		exists[string(m.UID)] = true
		phase := machinePhase(m)
		phase.Message = s.publicMessage(phase.Name, phase.Message)
		subject := r.Subject(index, timelines.KindMachine, m)
		subject.Roles, subject.Pool = rolesOf(m), m.Labels[rkev1.MachinePoolNameLabel]
		if subject.SetPhase(phase, now) {
			changed = max(changed, progress)
			if phase.Outcome == timelines.OutcomeFailed {
				changed = outcome
			}
		}
	}
	for _, op := range s.operations {
		exists[string(op.GetUID())] = true
	}
	if r.SetOperations(index, s.operationPhases(now), now) {
		changed = outcome
	}
	for i := range r.Subjects {
		subject := &r.Subjects[i]
		if subject.Gone == nil && !exists[string(subject.UID)] {
			at := metav1.NewTime(now.Truncate(time.Second))
			subject.EndPhase(at, timelines.OutcomeGone)
			subject.Gone = &at
			changed = max(changed, progress)
		}
	}
	return changed
}

func rolesOf(m *clusterv1.Machine) []string {
	var roles []string
	for _, role := range []struct{ label, name string }{
		{rkev1.EtcdRoleLabel, "etcd"}, {rkev1.ControlPlaneRoleLabel, "control-plane"}, {rkev1.WorkerRoleLabel, "worker"},
	} {
		if m.Labels[role.label] == "true" {
			roles = append(roles, role.name)
		}
	}
	return roles
}
