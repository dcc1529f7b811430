package operation

import (
	"fmt"
	"time"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	"github.com/drover-dev/drover/hub/plan/release"
	"github.com/drover-dev/drover/hub/plan/rollout"
	"github.com/drover-dev/drover/hub/util/message"
)

// The tasks of a TokenRotation.
const (
	// TaskRotateToken gives one server the new token, with which it encrypts the shared data.
	TaskRotateToken TaskName = "rotate-token"
	// TaskConfigureToken writes the new tokens into the configuration of a machine.
	TaskConfigureToken TaskName = "configure-token"
	// TaskCheckToken checks that a server was started with the new token.
	TaskCheckToken TaskName = "check-token"
)

// TokenTimeout is how long a machine may take for a step in which nothing restarts.
const TokenTimeout = 10 * time.Minute

// ReasonNotSupported is the reason of an operation that the distribution does not know.
const ReasonNotSupported = "NotSupported"

// ReasonUnmanagedConfig is the reason of an operation that has to write the configuration of machines, which the hub does not write.
const ReasonUnmanagedConfig = "UnmanagedConfig"

// TokenRotated reports whether a server has taken the new token, by the step of the operation: from then on it is the cluster's.
func TokenRotated(op *operationv1.TokenRotation) bool {
	return op.Status.Phase == operationv1.PhaseInProgress && op.Status.Step != operationv1.StepRotateToken && op.Status.Step != ""
}

func tokenRotation(op *operationv1.TokenRotation) kind {
	return kind{
		begin: func(in Inputs) problem {
			if in.UnmanagedConfig {
				return problem{reason: ReasonUnmanagedConfig, fatal: true, text: "The tokens are in configuration files that the hub does not " +
					"write: spec.unmanagedConfig is true"}
			}
			if old := serversWithout(in, release.RotateToken); len(old) > 0 {
				if ever := neverHas(in, release.RotateToken); len(ever) == 0 {
					return problem{reason: ReasonWaitingForMachine, text: fmt.Sprintf("Waiting for %s to be upgraded: its release cannot rotate "+
						"tokens", message.JoinNames(old, maxNames))}
				}
				return problem{reason: ReasonNotSupported, fatal: true, patience: specPatience, text: fmt.Sprintf("The release on %s cannot "+
					"rotate tokens; upgrade to v1.29 or later", message.JoinNames(old, maxNames))}
			}
			// One that goes on with a pending token is what servers wait for: they do not start with the other one.
			return serversReady(in, !in.TokenPending)
		},
		steps: []step{
			{name: operationv1.StepRotateToken, task: TaskRotateToken, timeout: TokenTimeout, byLeader: true, whole: true,
				machines: func(in Inputs) []string { return keyLeader(in, op.Status.Leader) },
				instead:  anotherUnlessBegun, title: "Rotating the token", doing: "encrypt the shared data with the new token"},
			{name: operationv1.StepConfigure, task: TaskConfigureToken, timeout: TokenTimeout, skipDeleted: true,
				machines: func(in Inputs) []string { return names(in.Machines, configuresToken) },
				title:    "Writing the new tokens", doing: "write the new tokens"},
			{name: operationv1.StepRestartServers, task: TaskCheckToken, timeout: restartTimeout, inTurn: true, skipDeleted: true, rendered: true,
				machines: func(in Inputs) []string { return names(in.Machines, runsServer) },
				title:    "Restarting the servers", doing: "restart with the new token"},
		},
		advice: func(step string) string {
			if step == operationv1.StepRotateToken {
				return "Restart no server before it is known which token the data is encrypted with: see " + pages + "tokenrotation.md"
			}
			return "The shared data is encrypted with the new token, which plans contain from now on: the hub goes on to deliver it"
		},
		done: func(*operationv1.Status) string {
			return "All servers have the new tokens. The old ones are kept for snapshots from before; agents get theirs by a rollout"
		},
	}
}

// configuresToken reports whether a machine is waited for until it has the new tokens. The last report of a worker whose kubelet has
// stopped reporting may be healthy: it is given them by a rollout, as one that is not healthy.
func configuresToken(m Machine) bool {
	return runsServer(m) || m.Working() && m.Node != rollout.NodeLost
}
