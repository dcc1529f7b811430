package operation

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	"github.com/drover-dev/drover/hub/plan/release"
	"github.com/drover-dev/drover/hub/plan/rollout"
	"github.com/drover-dev/drover/hub/util/message"
)

// The tasks of an EncryptionKeyRotation.
const (
	// TaskRotateKeys makes a new key and writes all Secrets with it.
	TaskRotateKeys TaskName = "rotate-encryption-keys"
	// TaskPrepareKey adds a key.
	TaskPrepareKey TaskName = "prepare-encryption-key"
	// TaskRotatePreparedKey makes the added key the one to write with.
	TaskRotatePreparedKey TaskName = "rotate-encryption-key"
	// TaskReencrypt writes all Secrets with it.
	TaskReencrypt TaskName = "reencrypt-secrets"
	// TaskVerifyKeys checks that all servers have the new key, and that all Secrets can be read.
	TaskVerifyKeys TaskName = "verify-encryption-keys"
	// TaskRestartServer restarts the server of the distribution.
	TaskRestartServer TaskName = "restart-server"
)

const (
	// RotateTimeout is how long writing all Secrets may take. k3s writes hundreds in a second, and wrote five in releases before 2024.
	RotateTimeout = time.Hour
	// VerifyTimeout is how long a server may take until it reports the new key. It does so when it has started.
	VerifyTimeout = 10 * time.Minute
	// restartTimeout is how long a server may take to restart and be healthy.
	restartTimeout = 20 * time.Minute
)

// oneCommand are the steps that a rotation with one command goes through, beside StepVerify; threeStages those of one with three.
var (
	oneCommand  = []string{operationv1.StepRotateKeys, operationv1.StepRestart}
	threeStages = []string{operationv1.StepPrepare, operationv1.StepPostPrepareRestart, operationv1.StepRotatePrepared,
		operationv1.StepPostRotateRestart, operationv1.StepReencrypt, operationv1.StepPostReencryptRestart}
)

func encryptionKeyRotation(op *operationv1.EncryptionKeyRotation) kind {
	// The release may change while the operation waits to go on, so that the step that it is in decides.
	short := func(in Inputs) bool {
		switch {
		case slices.Contains(oneCommand, op.Status.Step):
			return true
		case slices.Contains(threeStages, op.Status.Step):
			return false
		}
		return rotatesWithOneCommand(in)
	}
	leaderIf := func(wanted bool) func(Inputs) []string {
		return func(in Inputs) []string {
			if short(in) != wanted {
				return nil
			}
			return keyLeader(in, op.Status.Leader)
		}
	}
	serversIf := func(wanted bool) func(Inputs) []string {
		return func(in Inputs) []string {
			all := names(in.Machines, runsServer)
			if short(in) != wanted || wanted && len(all) == 1 {
				// The one that has made the key has nothing to learn.
				return nil
			}
			return all
		}
	}
	another := func(in Inputs, _ bool) string { return first(keyLeader(in, "")) }
	stage := func(name string, task TaskName, title, phrase string) step {
		return step{name: name, task: task, machines: leaderIf(false), timeout: RotateTimeout, byLeader: true, instead: another,
			title: title, doing: phrase}
	}
	restart := func(name string, short bool) step {
		return step{name: name, task: TaskRestartServer, machines: serversIf(short), timeout: restartTimeout, inTurn: true,
			skipDeleted: true, title: "Restarting the servers", doing: "restart"}
	}
	return kind{
		begin:    func(in Inputs) problem { return serversReady(in, true) },
		restarts: true,
		steps: []step{
			{name: operationv1.StepRotateKeys, task: TaskRotateKeys, machines: leaderIf(true), timeout: RotateTimeout, byLeader: true,
				// With one command, the new key is on no other server until all Secrets are written.
				instead: anotherUnlessBegun, title: "Rotating the key", doing: "write all Secrets with a new key"},
			restart(operationv1.StepRestart, true),
			stage(operationv1.StepPrepare, TaskPrepareKey, "Adding a key", "add a key"),
			restart(operationv1.StepPostPrepareRestart, false),
			stage(operationv1.StepRotatePrepared, TaskRotatePreparedKey, "Switching to the added key", "switch to the added key"),
			restart(operationv1.StepPostRotateRestart, false),
			stage(operationv1.StepReencrypt, TaskReencrypt, "Writing all Secrets with the new key", "write all Secrets with the new key"),
			restart(operationv1.StepPostReencryptRestart, false),
			{name: operationv1.StepVerify, task: TaskVerifyKeys, timeout: VerifyTimeout + time.Minute, skipDeleted: true,
				machines: func(in Inputs) []string {
					return names(in.Machines, func(m Machine) bool { return m.ControlPlane && runsServer(m) })
				}, title: "Checking the new key", doing: "report the new key"},
		},
		advice: func(step string) string {
			switch step {
			case operationv1.StepRotateKeys:
				return adviceRotate
			case operationv1.StepRestart, operationv1.StepPostReencryptRestart, operationv1.StepVerify:
				return adviceRestart
			}
			return adviceStages
		},
		done: func(*operationv1.Status) string {
			return "All Secrets are encrypted with a new key, and all servers have it"
		},
	}
}

// What to do when a rotation has failed.
const (
	adviceRotate = "Keep the machine and its server/cred directory: until all Secrets are written, the new key is nowhere else. " +
		"Run \"secrets-encrypt status\" there, and see " + pages + "encryptionkeyrotation.md"
	adviceStages = "Old and new key are both kept, so that all Secrets can be read. " +
		"Run \"secrets-encrypt status\" on a server, and see " + pages + "encryptionkeyrotation.md"
	adviceRestart = "All Secrets are written with the new key. Servers that have not restarted since cannot read them: restart those, " +
		"and check \"secrets-encrypt status\""
)

// KeyHolder is the machine on which alone a new key is, while an EncryptionKeyRotation writes Secrets with it; empty for none. rotating
// reports whether one is in progress: one that has ended may have left the key there.
func KeyHolder(op operationv1.Operation) (machine string, rotating bool) {
	r, is := op.(*operationv1.EncryptionKeyRotation)
	if !is || r.Status.Phase != operationv1.PhaseInProgress {
		return "", false
	}
	if r.Status.Step != operationv1.StepRotateKeys {
		return "", true
	}
	return r.Status.Leader, true
}

// runsServer reports whether a machine has been given a plan to run a server with. Those that join later get the keys as they are then.
func runsServer(m Machine) bool { return m.Server() && m.Progress != rollout.ProgressNone }

// serversReady is the problem of an operation for which all servers have to have applied their plan. With current set, they also have to be
// healthy, and to have what is wanted.
func serversReady(in Inputs, current bool) problem {
	servers := names(in.Machines, runsServer)
	if len(keyLeader(in, "")) == 0 {
		return problem{reason: ReasonWaitingForMachine, text: "Waiting for a machine with the role control-plane"}
	}
	if p := busy(in, servers); p.reason != "" || !current {
		return p
	}
	if down := names(in.Machines, func(m Machine) bool { return runsServer(m) && !m.Working() }); len(down) > 0 {
		return problem{reason: ReasonWaitingForMachine, text: fmt.Sprintf("Waiting for %s to be healthy: all servers have to restart during "+
			"the operation", message.JoinNames(down, maxNames))}
	}
	// Servers that have yet to change may have other keys, and do not restart for it in the middle.
	changing := names(in.Machines, func(m Machine) bool { return runsServer(m) && m.Change.Disruptive() })
	if len(changing) > 0 {
		return problem{reason: ReasonWaitingForMachine, text: fmt.Sprintf("Waiting for %s to have the configuration that the Cluster asks for",
			message.JoinNames(changing, maxNames))}
	}
	return problem{}
}

// keyLeader is the machine that changes the key: the last one, or else the init node, or else the first control plane node that works. One
// that is healthy at the moment goes before one that was.
func keyLeader(in Inputs, last string) []string {
	var best []string
	for _, want := range []func(Machine) bool{
		func(m Machine) bool { return m.Name == last },
		func(m Machine) bool { return m.Init && m.Working() && len(m.Unhealthy) == 0 },
		func(m Machine) bool { return m.Working() && len(m.Unhealthy) == 0 },
		func(m Machine) bool { return m.Init && m.Working() },
		Machine.Working,
		runsServer,
	} {
		if best = names(in.Machines, func(m Machine) bool { return m.ControlPlane && runsServer(m) && want(m) }); len(best) > 0 {
			return best[:1]
		}
	}
	return nil
}

// anotherUnlessBegun is another leader where the one that is deleted has not begun.
func anotherUnlessBegun(in Inputs, begun bool) string {
	if begun {
		return ""
	}
	return first(keyLeader(in, ""))
}

func first(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return names[0]
}

// rotatesWithOneCommand reports whether all servers run a release that rotates keys with one command.
func rotatesWithOneCommand(in Inputs) bool {
	return len(serversWithout(in, release.RotateEncryptionKeys)) == 0
}

// neverHas are the names of the servers whose release, also that of the specification, lacks a feature.
func neverHas(in Inputs, feature string) []string {
	return names(in.Machines, func(m Machine) bool {
		r, err := release.Lookup(cmp.Or(m.WantVersion, m.Version))
		return runsServer(m) && err == nil && !r.Has(feature)
	})
}

// serversWithout are the names of the servers that run a release without a feature.
func serversWithout(in Inputs, feature string) []string {
	return names(in.Machines, func(m Machine) bool {
		r, err := release.Lookup(cmp.Or(m.Version, m.WantVersion))
		return runsServer(m) && err == nil && !r.Has(feature)
	})
}
