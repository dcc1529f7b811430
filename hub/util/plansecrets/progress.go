package plansecrets

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// ProgressShownAfter is how long after the delivery of a plan the conditions of its machine begin to say that the agent has not started
// with it, or is applying it. Many plans are applied before, and cost four writes per machine less. The more plans are in progress, the
// longer it takes until the hub has read what their agents report, and writes would make it longer still.
func ProgressShownAfter(inProgress int) time.Duration {
	const least, most, each = 3 * time.Second, time.Minute, 50 * time.Millisecond
	return min(least+time.Duration(inProgress)*each, most)
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

// Progress counts the plans in progress that conditions do not show yet. The zero value counts none.
type Progress struct {
	mu      sync.Mutex
	secrets map[client.ObjectKey]struct{}
}

// Count returns how many there are beside the plan of a Secret.
func (p *Progress) Count(except client.ObjectKey) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, in := p.secrets[except]; in {
		return len(p.secrets) - 1
	}
	return len(p.secrets)
}

// Set says whether the plan of a Secret is one of them.
func (p *Progress) Set(secret client.ObjectKey, is bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !is {
		delete(p.secrets, secret)
		return
	}
	if p.secrets == nil {
		p.secrets = map[client.ObjectKey]struct{}{}
	}
	p.secrets[secret] = struct{}{}
}
