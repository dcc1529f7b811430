package managementcluster

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
)

const (
	// startGrace is how long agents may take to reconnect after the hub was started; legacy agents wait ten seconds between attempts.
	startGrace = 45 * time.Second
	// lossGrace is how long a session may be lost before the condition says so: an agent that only replaces its connection is back sooner.
	lossGrace = time.Second
	// A cluster that lost its connection unstableLosses times within lossWindow has to keep, or to miss, the connection for stablePeriod
	// before the condition follows.
	unstableLosses = 3
	lossWindow     = 5 * time.Minute
	stablePeriod   = 30 * time.Second
)

// Reasons of the condition Connected.
const (
	reasonConnected    = "Connected"
	reasonWaiting      = "WaitingForAgent"
	reasonDisconnected = "Disconnected"
	reasonUnstable     = "Unstable"
)

// connectionInputs is what the condition Connected is computed from.
type connectionInputs struct {
	connected bool
	// previous is the condition as written last; nil if it never was.
	previous *metav1.Condition
	// now is the time. The others are set by history.observe: started is when this hub began to watch sessions, zero once it has seen this
	// cluster connected; connectedSince and lostSince are when the present state began.
	now, started, connectedSince, lostSince time.Time
	// losses is how often the connection was lost within lossWindow.
	losses int
	// imported is true where a user deploys the agent.
	imported bool
	// cluster is namespace/name, serverURL where agents connect to; both are for messages.
	cluster, serverURL string
}

// connectedCondition returns the condition, and after which time to compute it again; zero is when a session changes.
//
//	session     previous                      condition
//	connected   not True, and unstable        False Unstable, until stable for stablePeriod
//	connected   any other                     True
//	lost        True, within a grace period   as it is
//	lost        True                          False Disconnected
//	lost        Disconnected                  as it is
//	lost        Unstable                      as it is; False Disconnected after stablePeriod
//	lost        none, WaitingForAgent         False WaitingForAgent
func connectedCondition(in connectionInputs) (metav1.Condition, time.Duration) {
	condition := metav1.Condition{Type: managementv3.ConnectedCondition, Status: metav1.ConditionFalse}
	connectedBefore := in.previous != nil && in.previous.Status == metav1.ConditionTrue
	switch {
	case in.connected && in.losses >= unstableLosses && !connectedBefore && in.now.Sub(in.connectedSince) < stablePeriod:
		condition.Reason = reasonUnstable
		condition.Message = fmt.Sprintf("Cluster agent is unstable: lost its connection at least %d times in the last %d minutes. %s",
			unstableLosses, int(lossWindow.Minutes()), in.hint())
		return condition, stablePeriod - in.now.Sub(in.connectedSince)
	case in.connected:
		condition.Status, condition.Reason = metav1.ConditionTrue, reasonConnected
		return condition, 0
	case connectedBefore:
		deadline := in.lostSince.Add(lossGrace)
		if start := in.started.Add(startGrace); start.After(deadline) {
			deadline = start
		}
		if left := deadline.Sub(in.now); left > 0 {
			return *in.previous, left
		}
		return in.disconnected(condition), 0
	case in.previous != nil && in.previous.Reason == reasonDisconnected:
		return *in.previous, 0
	case in.previous != nil && in.previous.Reason == reasonUnstable:
		if left := stablePeriod - in.now.Sub(in.lostSince); left > 0 {
			return *in.previous, left
		}
		return in.disconnected(condition), 0
	case in.imported:
		condition.Message = fmt.Sprintf(
			"Waiting for the cluster agent to connect; run \"hub import-command %s\" for the command that deploys it", in.cluster)
	default:
		condition.Message = "Waiting for the cluster agent, which the plans of the control plane deploy, to connect. " + in.hint()
	}
	condition.Reason = reasonWaiting
	return condition, 0
}

func (in connectionInputs) disconnected(condition metav1.Condition) metav1.Condition {
	condition.Reason = reasonDisconnected
	condition.Message = fmt.Sprintf("Cluster agent disconnected since %s. %s", in.lostSince.UTC().Format(time.RFC3339), in.hint())
	return condition
}

func (in connectionInputs) hint() string {
	return fmt.Sprintf(
		"Check the log of Deployment cattle-system/cattle-cluster-agent in the cluster, and whether its Pods reach %s", in.serverURL)
}
