package operation

import (
	"strings"
	"time"

	"sigs.k8s.io/cluster-api/util/conditions"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
)

// heldPrefix begins the message of an operation that its control plane holds.
const heldPrefix = "The RKEControlPlane cannot carry out operations: "

// HoldFor sets the status of an operation that has not ended, while the RKEControlPlane of its Cluster waits for something without which it
// carries out none; reason and text say for what. One in progress keeps its phase and its step, and one that was canceled before it began
// ends.
func HoldFor(op operationv1.Operation, now time.Time, reason, text string) {
	hold(op, now, reason, heldPrefix+text)
}

// resume begins the time of an operation again that its control plane has held: machines were given nothing to do meanwhile.
func (e *engine) resume() {
	if strings.HasPrefix(conditions.GetMessage(e.op, operationv1.SucceededCondition), heldPrefix) {
		e.touch()
	}
}

// endOfBackup ends an operation that had not ended in the backup that the hub was restored from. It may have ended since: a restore that is
// carried out once more takes the cluster back to its snapshot once more.
func (e *engine) endOfBackup() {
	e.end(operationv1.PhaseFailed, ReasonHubRestored, "The hub was restored from a backup in which this operation had not ended, and does "+
		"not know what became of it since: look at the cluster, and create another operation if it is needed")
}
