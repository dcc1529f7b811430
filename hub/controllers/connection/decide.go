package connection

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
)

const (
	// startGrace is how long agents have to come back after the hub was started; those of other makers wait ten seconds between attempts.
	startGrace = 45 * time.Second
	// lossGrace is how long a session may be away before its cluster is called disconnected: an agent that only changes its connection is
	// back sooner.
	lossGrace = time.Second
	// A cluster that was lost manyLosses times within lossesFor is called connected again only when it has been for steadyFor, and disconnected
	// only when it has not been for as long.
	manyLosses = 3
	steadyFor  = 30 * time.Second
)

// Reasons of the condition Connected.
const (
	reasonConnected    = "Connected"
	reasonWaiting      = "WaitingForAgent"
	reasonDisconnected = "Disconnected"
	reasonUnstable     = "Unstable"
)

// facts are what the connection of a cluster is told from.
type facts struct {
	connected bool
	// was is the condition as it was written last; nil before.
	was *metav1.Condition
	// now is the time, started when this hub began to look where it has not seen the cluster connected yet, connectedSince since when the
	// cluster is connected, and missedSince since when one that was connected is not.
	now, started, connectedSince, missedSince time.Time
	// losses is how often it was lost lately.
	losses int
	// imported tells that somebody else has to deploy the agent.
	imported bool
	// cluster is namespace and name for people, serverURL where agents connect to.
	cluster, serverURL string
}

// decide returns the condition, and when to look again; zero means when something happens.
func decide(f facts) (metav1.Condition, time.Duration) {
	condition := metav1.Condition{Type: managementv3.ConnectedCondition, Status: metav1.ConditionFalse}
	connectedBefore := f.was != nil && f.was.Status == metav1.ConditionTrue
	switch {
	case f.connected && f.losses >= manyLosses && !connectedBefore && f.now.Sub(f.connectedSince) < steadyFor:
		condition.Reason = reasonUnstable
		condition.Message = "The cluster-agent comes and goes: it was lost several times within minutes. " + f.whereToLook()
		return condition, steadyFor - f.now.Sub(f.connectedSince)
	case f.connected:
		condition.Status, condition.Reason = metav1.ConditionTrue, reasonConnected
		return condition, 0
	case connectedBefore:
		until := f.missedSince.Add(lossGrace)
		if start := f.started.Add(startGrace); start.After(until) {
			until = start
		}
		if wait := until.Sub(f.now); wait > 0 {
			return *f.was, wait
		}
		return f.disconnected(condition), 0
	case f.was != nil && f.was.Reason == reasonDisconnected:
		return *f.was, 0
	case f.was != nil && f.was.Reason == reasonUnstable:
		if wait := steadyFor - f.now.Sub(f.missedSince); wait > 0 {
			return *f.was, wait
		}
		return f.disconnected(condition), 0
	case f.imported:
		condition.Message = fmt.Sprintf("No agent of this cluster has connected yet. Deploy it there: \"hub import-command %s\" shows the command", f.cluster)
	default:
		condition.Message = "No agent of this cluster has connected yet; the control plane's plans deploy it. " + f.whereToLook()
	}
	condition.Reason = reasonWaiting
	return condition, 0
}

func (f facts) disconnected(condition metav1.Condition) metav1.Condition {
	condition.Reason = reasonDisconnected
	condition.Message = fmt.Sprintf("The cluster-agent has not been connected since %s. %s", f.missedSince.UTC().Format(time.RFC3339), f.whereToLook())
	return condition
}

func (f facts) whereToLook() string {
	return fmt.Sprintf("In the cluster, look at the log of the Deployment cattle-cluster-agent in the namespace cattle-system, and whether its Pods reach %s", f.serverURL)
}
