package plansecrets

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/util/inprogress"
)

// ProgressShownAfter is how long after the delivery of a plan the conditions of its machine begin to say that the agent has not started
// with it, or is applying it. Many plans are applied before, and cost four writes per machine less. The more plans are in progress, the
// longer it takes until the hub has read what their agents report, and writes would make it longer still.
func ProgressShownAfter(inProgress int) time.Duration {
	return inprogress.Delay(3*time.Second, inProgress)
}

// UntilProgressShown is how much is left of after, a time since the delivery of the plan; zero if it is over, or nothing says when the plan
// was delivered.
func UntilProgressShown(secret *corev1.Secret, after time.Duration, now time.Time) time.Duration {
	delivered, err := time.Parse(time.RFC3339, secret.Annotations[rkev1.PlanLastUpdatedAnnotation])
	if err != nil || delivered.After(now) {
		return 0
	}
	return max(0, delivered.Add(after).Sub(now))
}
