package operation

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sigs.k8s.io/cluster-api/util/conditions"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	"github.com/drover-dev/drover/hub/plan/rollout"
	"github.com/drover-dev/drover/hub/util/message"
)

// maxNames bounds the names of machines in a message.
const maxNames = 5

// engine decides about one operation.
type engine struct {
	op     operationv1.Operation
	spec   *operationv1.Spec
	status *operationv1.Status
	kind   kind
	in     Inputs
	out    Decision
}

func newEngine(op operationv1.Operation, in Inputs) *engine {
	return &engine{op: op, spec: op.CommonSpec(), status: op.CommonStatus(), kind: kindOf(op), in: in}
}

// begin begins the first step from an index on that has machines; without one the operation has succeeded.
func (e *engine) begin(from int) {
	for _, s := range e.kind.steps[from:] {
		names := s.machines(e.in)
		if len(names) == 0 {
			continue
		}
		e.status.Step, e.status.Machines = s.name, nil
		for _, name := range names {
			e.status.Machines = append(e.status.Machines, operationv1.MachineStatus{Name: name, Phase: operationv1.PhaseInProgress})
		}
		e.touch()
		for i := range e.in.Machines {
			e.in.Machines[i].Has = false // that was the task of the step before
		}
		return
	}
	e.end(operationv1.PhaseSucceeded, string(operationv1.PhaseSucceeded), e.kind.done(e.status))
}

// follow reads how far the machines are, and goes on to the next step when all have done their task.
func (e *engine) follow() {
	for e.status.Phase == operationv1.PhaseInProgress {
		i := slices.IndexFunc(e.kind.steps, func(s step) bool { return s.name == e.status.Step })
		if i < 0 {
			// Another hub, or a user, wrote a step that is not known here.
			e.end(operationv1.PhaseFailed, ReasonMachineFailed, fmt.Sprintf("The step %q in status.step is not known to this hub", e.status.Step))
			return
		}
		if e.followStep(e.kind.steps[i]) {
			return
		}
		if e.spec.Paused {
			e.set(operationv1.PhaseInProgress, metav1.ConditionUnknown, operationv1.PausedCondition, "Waiting for spec.paused to become false")
			return
		}
		e.begin(i + 1)
	}
}

// followStep reports whether the operation stays in the step, or has ended in it.
func (e *engine) followStep(s step) bool {
	left := s.timeout - e.in.Now.Sub(e.since())
	var running, failed []string
	changed := false
	for i := range e.status.Machines {
		m := &e.status.Machines[i]
		if m.Phase == operationv1.PhaseInProgress {
			m.Phase, m.Message = e.progress(s, m.Name, left)
			changed = changed || m.Phase != operationv1.PhaseInProgress
		}
		switch m.Phase {
		case operationv1.PhaseInProgress:
			running = append(running, m.Name)
		case operationv1.PhaseFailed:
			failed = append(failed, m.Name)
		}
	}
	switch {
	case len(failed) > 0 && (len(running) == 0 || s.inTurn):
		for i := range e.status.Machines {
			if m := &e.status.Machines[i]; m.Phase == operationv1.PhaseInProgress {
				m.Phase, m.Message = operationv1.PhaseFailed, "The operation ended before, since it failed on another machine"
			}
		}
		e.end(operationv1.PhaseFailed, ReasonMachineFailed, fmt.Sprintf("%s failed on %s; status.machines says why", s.title,
			message.JoinNames(failed, maxNames)))
		return true
	case len(running) == 0:
		return false
	}
	if changed {
		e.touch()
		left = s.timeout
	}
	e.out = Decision{Tasks: map[string]Task{}, Again: left}
	for _, name := range running {
		// In a pause, a machine goes on that has begun.
		if i := e.find(name); !e.spec.Paused || i >= 0 && e.in.Machines[i].Has {
			e.out.Tasks[name] = Task{Step: s.name, Name: s.task, Regardless: s.regardless}
		}
	}
	e.set(operationv1.PhaseInProgress, metav1.ConditionUnknown, string(operationv1.PhaseInProgress),
		"Waiting for "+message.JoinNames(running, maxNames)+" to "+s.doing)
	return true
}

// since is from when on machines have their time: the last progress, or the end of what kept them from it.
func (e *engine) since() time.Time {
	if e.status.LastUpdated == nil {
		e.touch()
	}
	since := e.status.LastUpdated.Time
	if e.in.Since.After(since) {
		since = e.in.Since
	}
	if p := conditions.Get(e.op, operationv1.PausedCondition); p != nil && p.LastTransitionTime.After(since) {
		since = p.LastTransitionTime.Time
	}
	return since
}

func (e *engine) find(name string) int {
	return slices.IndexFunc(e.in.Machines, func(m Machine) bool { return m.Name == name })
}

// progress is how far a machine is that has not ended; left is what is left of its time.
func (e *engine) progress(s step, name string, left time.Duration) (operationv1.Phase, string) {
	i := e.find(name)
	if i < 0 || e.in.Machines[i].Deleting {
		return operationv1.PhaseFailed, "The Machine was deleted"
	}
	m := e.in.Machines[i]
	if e.spec.Paused && !m.Has {
		return operationv1.PhaseInProgress, ""
	}
	switch {
	case m.Has && m.Progress == rollout.ProgressApplied && (!s.inTurn || m.Working()):
		return operationv1.PhaseSucceeded, ""
	case m.Has && m.Progress == rollout.ProgressFailed:
		return operationv1.PhaseFailed, strings.TrimSpace("The plan failed. " + m.Failure)
	case m.Has && m.Progress == rollout.ProgressCanceled:
		return operationv1.PhaseFailed, "Somebody has canceled the plan"
	case left <= 0 && m.Has && m.Progress == rollout.ProgressApplied:
		return operationv1.PhaseFailed, fmt.Sprintf("The machine has done its task, and is not healthy after %s: %s", s.timeout,
			message.JoinNames(slices.Concat(m.Unhealthy, m.HealthUnknown), maxNames))
	case left <= 0:
		return operationv1.PhaseFailed, fmt.Sprintf("The machine has not answered within %s", s.timeout)
	}
	return operationv1.PhaseInProgress, ""
}
