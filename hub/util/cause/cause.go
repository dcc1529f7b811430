// Package cause has the type of what keeps a condition from being met. A Cause is no error: the condition tells it to the user, and nothing
// retries it, since a watch brings the next reconcile. An error, which is retried, is returned beside the Cause that tells it.
package cause

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Cause is why a condition is not met, as metav1.StatusCause is why a request failed.
type Cause struct {
	// Reason is the reason of the condition, in CamelCase. It is API.
	Reason string
	// Message is for the user: it names the object, what is wrong or being waited for, and what to do.
	Message string
}

// New returns a Cause with a message of a format, as for fmt.Sprintf.
func New(reason, format string, args ...any) *Cause {
	return &Cause{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// Condition is true for this reason where there is no cause, and otherwise false for that of the cause.
func (c *Cause) Condition(conditionType, reason string) metav1.Condition {
	if c == nil {
		return metav1.Condition{Type: conditionType, Status: metav1.ConditionTrue, Reason: reason}
	}
	return metav1.Condition{Type: conditionType, Status: metav1.ConditionFalse, Reason: c.Reason, Message: c.Message}
}
