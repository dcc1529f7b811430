package operation

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"sigs.k8s.io/cluster-api/util/conditions"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	"github.com/drover-dev/drover/hub/plan/rollout"
	"github.com/drover-dev/drover/hub/util/message"
)

// maxNames bounds the names of machines in a message.
const maxNames = 5

// otherVersionTime is how long an operation waits for a hub that knows its step, from when on this one leads. An upgrade of all replicas
// takes less.
const otherVersionTime = 15 * time.Minute

// lostTimeout is how long an operation waits for a machine that it can go on without, from the last progress on.
const lostTimeout = 10 * time.Minute

// engine decides about one operation.
type engine struct {
	op     operationv1.Operation
	spec   *operationv1.Spec
	status *operationv1.Status
	kind   kind
	in     Inputs
	// index is the place of each machine in the inputs, by name: a cluster may have 10,000.
	index map[string]int
	out   Decision
}

func newEngine(op operationv1.Operation, in Inputs) *engine {
	e := &engine{op: op, spec: op.CommonSpec(), status: op.CommonStatus(), kind: kindOf(op), in: in, index: map[string]int{}}
	for i := range in.Machines {
		e.index[in.Machines[i].Name] = i
	}
	return e
}

// begin begins the first step from an index on that has machines, or that the hub does; without one the operation has succeeded.
func (e *engine) begin(from int) {
	for _, s := range e.kind.steps[from:] {
		var names []string
		if s.hub == nil {
			if names = e.machinesOf(s); len(names) == 0 {
				continue
			}
			e.status.Machines = nil // a step of the hub leaves those of the step before
		}
		e.status.Step = s.name
		for _, name := range names {
			e.status.Machines = append(e.status.Machines, operationv1.MachineStatus{Name: name, Phase: operationv1.PhaseInProgress})
		}
		if s.byLeader {
			e.status.Leader = names[0]
		}
		e.touch()
		for i := range e.in.Machines {
			e.in.Machines[i].Has = false // that was the task of the step before
		}
		return
	}
	e.end(operationv1.PhaseSucceeded, string(operationv1.PhaseSucceeded), e.kind.done(e.status))
}

// mustEndStep reports whether a machine has begun what must not be left undecided: a cancelation takes effect when it has ended.
func (e *engine) mustEndStep() bool {
	return e.status.Phase == operationv1.PhaseInProgress &&
		slices.ContainsFunc(e.kind.steps, func(s step) bool { return s.name == e.status.Step && s.whole }) &&
		slices.ContainsFunc(e.in.Machines, func(m Machine) bool { return m.Has })
}

// machinesOf are the names of the machines of a step, in the order in which they begin.
func (e *engine) machinesOf(s step) []string {
	names := s.machines(e.in)
	slices.SortStableFunc(names, func(a, b string) int { return strings.Compare(e.order(s, a), e.order(s, b)) })
	return names
}

// order is the place of a machine in a step. One that is gone is not waited for.
func (e *engine) order(s step, name string) string {
	if i := e.find(name); s.order != nil && i >= 0 {
		return s.order(e.in.Machines[i])
	}
	return ""
}

// optional is how long the operation waits for a machine whose failure does not end it; 0 for one whose failure does.
func (e *engine) optional(s step, name string) time.Duration {
	if s.optional == nil {
		return 0
	}
	if i := e.find(name); i >= 0 {
		return s.optional(e.in.Machines[i])
	}
	return s.optional(Machine{})
}

// begun reports whether a machine is at its task, has done it, or is at a plan from before.
func (m Machine) begun() bool {
	return m.Progress == rollout.ProgressApplying || m.Has && m.Progress != rollout.ProgressPending
}

// lost are those of some machines that have not ended without which the operation goes on if that stays so. While others may wait for
// servers, or for one that has begun, it does not show whether their agents are there.
func (e *engine) lost(s step, names []string) (lost []string) {
	if s.lost == nil {
		return nil
	}
	for _, name := range names {
		switch m := e.in.Machines[e.find(name)]; {
		case m.Server(), m.begun():
			return nil
		case s.lost(m) && (m.Has || !e.spec.Paused):
			lost = append(lost, name)
		}
	}
	return lost
}

// leaveOut has the operation go on without some of the machines that run, and returns the others.
func (e *engine) leaveOut(lost, running []string) []string {
	left := sets.New(lost...)
	for i := range e.status.Machines {
		if m := &e.status.Machines[i]; left.Has(m.Name) {
			m.Phase, m.Message = operationv1.PhaseCanceled, "The Node is lost or gone, and the machine has not begun"
		}
	}
	return slices.DeleteFunc(running, left.Has)
}

// follow reads how far the machines are, and goes on to the next step when all have done their task.
func (e *engine) follow() {
	for e.status.Phase == operationv1.PhaseInProgress {
		if e.kind.broken != nil {
			if why := e.kind.broken(e.in); why != "" {
				e.end(operationv1.PhaseFailed, ReasonMachineFailed, why)
				return
			}
		}
		i := slices.IndexFunc(e.kind.steps, func(s step) bool { return s.name == e.status.Step })
		if i < 0 {
			e.awaitOtherVersion()
			return
		}
		if s := e.kind.steps[i]; s.held(e.in) {
			// It cannot wait: the restore waits for it to end.
			e.end(operationv1.PhaseFailed, ReasonSnapshotNotRestored, s.title+" was not completed: the Cluster has the configuration of a snapshot "+
				"whose data was not restored")
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

// awaitOtherVersion waits for a hub that knows the step. A replica of another version may have begun it, and leads again when all replicas
// are replaced: machines may be stopped, and an operation that ends here would leave them so. What they do goes on: a plan without the task
// would break it off, and have it done once more later.
func (e *engine) awaitOtherVersion() {
	text := fmt.Sprintf("The step %q in status.step is not known to this version of the hub", e.status.Step)
	left := otherVersionTime - e.in.Now.Sub(e.since())
	if left <= 0 {
		e.end(operationv1.PhaseFailed, ReasonTimedOut, fmt.Sprintf("%s, and no other has led within %s", text, otherVersionTime))
		return
	}
	e.out = Decision{KeepTasks: true, Again: left}
	e.set(operationv1.PhaseInProgress, metav1.ConditionUnknown, ReasonWaitingForHub, text+"; waiting for the upgrade of all replicas")
}

// followStep reports whether the operation stays in the step, or has ended in it.
func (e *engine) followStep(s step) bool {
	if s.hub != nil {
		return e.followHub(s)
	}
	running, failed, changed := e.readMachines(s)
	for changed && len(running) == 0 && len(failed) == 0 && e.remaining() {
		e.touch() // those of the next place begin
		running, failed, changed = e.readMachines(s)
	}
	if lost := e.lost(s, running); len(lost) > 0 && len(failed) == 0 && !changed && e.in.Now.Sub(e.since()) >= lostTimeout {
		running, changed = e.leaveOut(lost, running), true
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
	}
	e.out = Decision{Tasks: map[string]Task{}, LeftOut: map[string]bool{}, Again: e.timeLeft(s, running)}
	for _, m := range e.status.Machines {
		if m.Phase == operationv1.PhaseCanceled {
			e.out.LeftOut[m.Name] = true
		}
	}
	working, succeeded := sets.New(running...), e.succeeded()
	for _, m := range e.in.Machines {
		// In a pause, a machine goes on that has begun. One that is done keeps its plan in an operation that nothing else comes between.
		begins := working.Has(m.Name) && (m.Has || !e.spec.Paused)
		if !m.Deleting && (begins || s.regardless && m.Has && succeeded.Has(m.Name)) {
			e.out.Tasks[m.Name] = Task{Step: s.name, Name: s.taskOf(m), Regardless: s.regardless, Rendered: s.rendered, Apart: s.apart}
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

// succeeded are the machines that have done their task of the step.
func (e *engine) succeeded() sets.Set[string] {
	names := sets.New[string]()
	for _, m := range e.status.Machines {
		if m.Phase == operationv1.PhaseSucceeded {
			names.Insert(m.Name)
		}
	}
	return names
}

// remaining reports whether machines have not ended.
func (e *engine) remaining() bool {
	return slices.ContainsFunc(e.status.Machines, func(m operationv1.MachineStatus) bool { return m.Phase == operationv1.PhaseInProgress })
}

// readMachines sets how far the machines are whose turn it is. running are those of them that have not ended, failed all machines by whose
// failure the operation fails. changed reports whether one has ended.
func (e *engine) readMachines(s step) (running, failed []string, changed bool) {
	place, begun := "", false
	for i := range e.status.Machines {
		m := &e.status.Machines[i]
		if m.Phase == operationv1.PhaseInProgress {
			if at := e.order(s, m.Name); !begun {
				place, begun = at, true
			} else if at != place {
				continue
			}
			changed = e.replaceDeleted(s, m) || changed
			m.Phase, m.Message = e.progress(s, m.Name)
			changed = changed || m.Phase != operationv1.PhaseInProgress
		}
		switch {
		case m.Phase == operationv1.PhaseInProgress:
			running = append(running, m.Name)
		case m.Phase == operationv1.PhaseFailed && e.optional(s, m.Name) == 0:
			failed = append(failed, m.Name)
		}
	}
	return running, failed, changed
}

// timeLeft is when the first of some machines has no time left.
func (e *engine) timeLeft(s step, names []string) time.Duration {
	limit := s.timeout
	if len(e.lost(s, names)) > 0 {
		limit = min(limit, lostTimeout)
	}
	for _, name := range names {
		limit = min(limit, cmp.Or(e.optional(s, name), limit))
	}
	return limit - e.in.Now.Sub(e.since())
}

// followHub follows a step that the hub does.
func (e *engine) followHub(s step) bool {
	since := e.in.Now.Sub(e.since())
	wait, do := s.hub(e.in, since)
	switch {
	case wait == "":
		return false
	case since >= s.timeout:
		e.end(operationv1.PhaseFailed, ReasonTimedOut, fmt.Sprintf("%s did not end within %s: %s", s.title, s.timeout, wait))
		return true
	}
	e.out = do
	if left := s.timeout - since; e.out.Again == 0 || left < e.out.Again {
		e.out.Again = left
	}
	e.set(operationv1.PhaseInProgress, metav1.ConditionUnknown, string(operationv1.PhaseInProgress), wait)
	return true
}

// find returns the place of a machine in the inputs; negative if it is gone.
func (e *engine) find(name string) int {
	if i, found := e.index[name]; found {
		return i
	}
	return -1
}

// replaceDeleted gives the task of a machine that was deleted to another one, where that is possible.
func (e *engine) replaceDeleted(s step, m *operationv1.MachineStatus) bool {
	i := e.find(m.Name)
	if s.instead == nil || i >= 0 && !e.in.Machines[i].Deleting {
		return false
	}
	// Where the Machine is gone, it is not known what its plan had.
	other := s.instead(e.in, i < 0 || e.in.Machines[i].Has)
	if other == "" {
		return false
	}
	m.Name = other
	if s.byLeader {
		e.status.Leader = other
	}
	return true
}

// progress is how far a machine is that has not ended.
func (e *engine) progress(s step, name string) (operationv1.Phase, string) {
	limit := cmp.Or(e.optional(s, name), s.timeout)
	left := limit - e.in.Now.Sub(e.since())
	i := e.find(name)
	switch deleted := i < 0 || e.in.Machines[i].Deleting; {
	case deleted && s.skipDeleted:
		return operationv1.PhaseSucceeded, "The Machine was deleted"
	case deleted:
		return operationv1.PhaseFailed, "The Machine was deleted"
	}
	m := e.in.Machines[i]
	if e.spec.Paused && !m.Has {
		return operationv1.PhaseInProgress, ""
	}
	done := m.Has && m.Progress == rollout.ProgressApplied
	healthy := !s.inTurn && !s.healthy || m.Working()
	switch {
	case done && healthy && (!s.joinable || m.JoinURL != ""):
		return operationv1.PhaseSucceeded, ""
	case m.Has && m.Progress == rollout.ProgressFailed:
		return operationv1.PhaseFailed, strings.TrimSpace("The plan failed. " + m.Failure)
	case m.Has && m.Progress == rollout.ProgressCanceled:
		return operationv1.PhaseFailed, "Somebody has canceled the plan"
	case left > 0:
		return operationv1.PhaseInProgress, ""
	case done && healthy:
		return operationv1.PhaseFailed, fmt.Sprintf("The machine has no address to join it by after %s", limit)
	case done:
		return operationv1.PhaseFailed, fmt.Sprintf("The machine has done its task, and is not healthy after %s: %s", limit,
			message.JoinNames(slices.Concat(m.Unhealthy, m.HealthUnknown), maxNames))
	case s.lost != nil && s.lost(m):
		return operationv1.PhaseInProgress, "" // it is left out when no other is at work
	}
	return operationv1.PhaseFailed, fmt.Sprintf("The machine has not answered within %s", limit)
}
