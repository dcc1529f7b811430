package timeline

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
)

// A cluster is looked at at most once in writeInterval, and the less often the larger its timeline is: one more writeInterval for each
// writeStep bytes.
const (
	writeInterval = time.Second
	writeStep     = 128 << 10
)

// Reconcile tells what has changed since the last pass. What changes while it may not write yet is told together, as it is by then.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	m, now := r.memoryOf(req.NamespacedName), r.Now()
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
	// Looking at a large cluster costs something too.
	m.next = now.Add(writeInterval * time.Duration(1+m.size/writeStep))
	if m.record == nil {
		if m.record, err = r.read(ctx, req.NamespacedName, now); err != nil {
			return ctrl.Result{}, err
		}
	}
	result, err := r.pass(ctx, req, s, m, now)
	if err != nil {
		// What is in memory may be ahead of what was written.
		m.record = nil
	}
	return result, err
}

func (r *Reconciler) pass(ctx context.Context, req ctrl.Request, s *scope, m *memory, now time.Time) (ctrl.Result, error) {
	result := ctrl.Result{}
	transitions := m.transitions(s.objects(), m.record.Observed.Time, now)
	told, err := r.tell(ctx, s, m, transitions, now)
	if err != nil {
		return result, err
	}
	if told < len(transitions) {
		result.RequeueAfter = writeInterval
	}
	changed := s.update(m.record, now)
	if changed || told > 0 {
		if told == len(transitions) {
			m.record.Observed = metav1.NewTime(now.Truncate(time.Second))
		}
		if m.size, err = r.write(ctx, req.NamespacedName, s, m.record); err != nil {
			return result, err
		}
	}
	return result, r.log(ctx, s, m, now)
}

// objects are all of the cluster's objects whose conditions are told.
func (s *scope) objects() []conditioned {
	var out []conditioned
	if s.provisioning != nil {
		out = append(out, s.provisioning)
	}
	if s.capi != nil {
		out = append(out, s.capi)
	}
	if s.controlPlane != nil {
		out = append(out, s.controlPlane)
	}
	for i := range s.pools {
		out = append(out, &s.pools[i])
	}
	for i := range s.machines {
		m := &s.machines[i]
		out = append(out, m)
		if b := s.bootstraps[m.Name]; b != nil {
			out = append(out, b)
		}
	}
	return out
}
