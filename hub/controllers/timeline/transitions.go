package timeline

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// conditionKey identifies a condition of an object; another object of the same name has another UID.
type conditionKey struct {
	uid           types.UID
	conditionType string
}

// conditionState is what makes a transition when it changes. The message is not part of it; the step of an operation is part of the reason.
type conditionState struct {
	status metav1.ConditionStatus
	reason string
}

// change is a condition with the state that it has changed to.
type change struct {
	key   conditionKey
	state conditionState
}

// transition is a condition that has changed.
type transition struct {
	change
	object conditioned
	// condition is the present one; reason and rule are for its Event.
	condition metav1.Condition
	reason    string
	rule      eventRule
	// at is when it changed.
	at time.Time
	// afterRestart is true where the Event may have been created before the hub was restarted.
	afterRestart bool
	// repeatable is true where an Event of the same name is that of an earlier transition: the status of the condition has not changed, so
	// that the time of its last transition is the same. Any other Event that exists is the one of this very transition.
	repeatable bool
}

// transitions compares conditions with those of which Events were created, and returns the changes, oldest first. Conditions without an
// Event are recorded as seen. After a restart nothing is known: all changes since observed are returned.
func (m *clusterState) transitions(objects []conditioned, observed, now time.Time) []transition {
	restarted := !m.recovered
	seen := map[conditionKey]conditionState{}
	var changed []transition
	for _, object := range objects {
		for _, c := range object.GetConditions() {
			t := transition{
				change: change{conditionKey{object.GetUID(), c.Type}, observedState(object, c)},
				object: object, condition: c, rule: ruleFor(object, c.Type), at: c.LastTransitionTime.Time, afterRestart: restarted,
			}
			previous, known := m.seen[t.key]
			t.reason = t.rule.reason(c)
			switch {
			case known && previous == t.state, t.reason == "", restarted && t.at.Before(observed.Truncate(time.Second)):
				seen[t.key] = t.state
				continue
			case !known && c.Status != metav1.ConditionTrue && t.rule.skipInitial && t.initial():
				seen[t.key] = t.state
				continue
			case known:
				seen[t.key] = previous
			}
			if known && previous.status == c.Status {
				t.at, t.repeatable = now, m.attempted == nil || *m.attempted != t.change
			}
			changed = append(changed, t)
		}
	}
	m.seen = seen
	slices.SortStableFunc(changed, func(a, b transition) int { return a.at.Compare(b.at) })
	return changed
}

func observedState(object conditioned, c metav1.Condition) conditionState {
	state := conditionState{c.Status, c.Reason}
	if step := stepOf(object, c); step != "" {
		state.reason += "/" + step
	}
	return state
}

// initial returns whether the condition has not changed since its object was created. Times of conditions are in seconds.
func (t transition) initial() bool {
	return !t.afterRestart || t.at.Sub(t.object.GetCreationTimestamp().Time) < 2*time.Second
}
