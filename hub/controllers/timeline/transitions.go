package timeline

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// conditionKey names a condition of an object, which another object of the same name does not share.
type conditionKey struct {
	uid           types.UID
	conditionType string
}

// state is what of a condition is told when it changes. A message may change as often as it likes.
type state struct {
	status metav1.ConditionStatus
	reason string
}

// transition is a condition that has changed.
type transition struct {
	key    conditionKey
	state  state
	object conditioned
	// condition is as it is now, reason and telling are for its Event.
	condition metav1.Condition
	reason    string
	telling   telling
	// at is when it changed.
	at time.Time
	// again is set where a hub that was stopped may have told it already.
	again bool
}

// transitions compares conditions with those that were told, oldest first, and remembers those that are not for telling. After a start
// nothing was told, so that all that has changed since observed may have to be.
func (m *memory) transitions(objects []conditioned, observed, now time.Time) []transition {
	start := m.seen == nil
	seen := map[conditionKey]state{}
	var changed []transition
	for _, object := range objects {
		for _, c := range object.GetConditions() {
			t := transition{
				key:   conditionKey{object.GetUID(), c.Type},
				state: state{c.Status, c.Reason}, object: object, condition: c, telling: tellingOf(object, c.Type),
				at: c.LastTransitionTime.Time, again: start,
			}
			was, known := m.seen[t.key]
			t.reason = t.telling.reason(c)
			switch {
			case known && was == t.state, t.reason == "", start && t.at.Before(observed.Truncate(time.Second)):
				seen[t.key] = t.state
				continue
			case !known && c.Status != metav1.ConditionTrue && t.telling.rests && t.fresh():
				seen[t.key] = t.state
				continue
			case known:
				seen[t.key] = was
			}
			if known && was.status == c.Status {
				t.at = now
			}
			changed = append(changed, t)
		}
	}
	m.seen = seen
	slices.SortStableFunc(changed, func(a, b transition) int { return a.at.Compare(b.at) })
	return changed
}

// fresh tells whether the condition is as it was when its object was made. Conditions know their times in seconds.
func (t transition) fresh() bool {
	return !t.again || t.at.Sub(t.object.GetCreationTimestamp().Time) < 2*time.Second
}
