package timeline

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// The kinds of subjects.
const (
	KindCluster = "Cluster"
	KindMachine = "Machine"
)

// update puts everything of a cluster into its present phase, and tells whether that changed the record.
func (s *scope) update(r *Record, now time.Time) bool {
	top := s.top()
	phase := s.clusterPhase()
	phase.message = s.message(phase.name, phase.message)
	index := r.index()
	changed := r.subject(index, KindCluster, top).enter(phase, now)

	there := map[string]bool{string(top.GetUID()): true}
	for i := range s.machines {
		m := &s.machines[i]
		there[string(m.UID)] = true
		phase := machinePhase(m)
		phase.message = s.message(phase.name, phase.message)
		subject := r.subject(index, KindMachine, m)
		subject.Roles, subject.Pool = rolesOf(m), m.Labels[rkev1.MachinePoolNameLabel]
		changed = subject.enter(phase, now) || changed
	}
	for i := range r.Subjects {
		subject := &r.Subjects[i]
		if subject.Gone == nil && !there[string(subject.UID)] {
			at := metav1.NewTime(now.Truncate(time.Second))
			subject.leave(at, OutcomeGone)
			subject.Gone = &at
			changed = true
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
