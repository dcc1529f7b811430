package render

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	"github.com/drover-dev/drover/hub/plan/operation"
	"github.com/drover-dev/drover/plans"
)

// The scripts of a restore. Their heads say what they do and take.
var (
	//go:embed scripts/restore-check.sh
	restoreCheckSh string
	//go:embed scripts/restore-stop.sh
	restoreStopSh string
	//go:embed scripts/restore-reset.sh
	restoreResetSh string
	//go:embed scripts/restore-rejoin.sh
	restoreRejoinSh string
	//go:embed scripts/restore-wait.sh
	restoreWaitSh string
)

const (
	// stillStopped is the name of an instruction that does nothing. It keeps the mark of a machine that an earlier operation has stopped.
	stillStopped = "stopped"
	// resetTimeout is how long the restore itself may take, and readyTimeout how long the distribution until it is ready, in seconds.
	resetTimeout, readyTimeout = 25 * 60, 10 * 60
)

// Stopped reports whether a machine with the plan was stopped for a restore and not started since. Only a task of a restore starts it.
func Stopped(plan plans.Plan) bool {
	stopping := []string{string(operation.TaskStop), string(operation.TaskRestoreSnapshot), stillStopped}
	return slices.ContainsFunc(plan.Instructions, func(i plans.Instruction) bool {
		return ofOperation(i) && slices.Contains(stopping, i.Name)
	})
}

// Restores reports whether a plan restores a snapshot. One that has failed is not retried: its operation has ended, and each attempt leaves
// another copy of what was there, of which few are kept.
func Restores(plan plans.Plan) bool {
	return slices.ContainsFunc(plan.Instructions, func(i plans.Instruction) bool {
		return ofOperation(i) && i.Name == string(operation.TaskRestoreSnapshot)
	})
}

// restoreAttempts is how often an agent may attempt to restore a snapshot: as often as one with plan-state attempts any plan before it
// reports the failure. One that knows checksums only would attempt it every 30 seconds, also when the operation has ended, until nothing is
// left of what was there: five copies are kept.
const restoreAttempts = 3

// Limits are how often the agent of a machine may fail to apply a plan, and after how many failures the plan counts as failed.
func Limits(m Machine, plan plans.Plan) (maxFailures, failureThreshold int) {
	if Restores(plan) {
		return restoreAttempts, restoreAttempts
	}
	return plans.Unlimited, m.FailureThreshold()
}

// apart replaces what a plan runs by what leaves its impact as it is: the change to it and back restarts nothing, and nothing that may fail
// in a broken cluster, such as pulling the installer, comes before the task. Where the plan was not applied, what is delivered afterwards
// counts as a change that restarts the machine: it may do what this plan has not done.
func (t *taskBuilder) apart(plan plans.Plan, stopped bool) []plans.Instruction {
	if stopped {
		return []plans.Instruction{t.script(stillStopped, ":")}
	}
	delivered := install(plan)
	if delivered.Name == "" {
		return nil
	}
	noop := plans.CommonInstruction{Name: delivered.Name, Command: noopCommand, Args: slices.Clone(noopArgs)}
	if t.Machine.Unapplied {
		return []plans.Instruction{{CommonInstruction: noop}}
	}
	for _, name := range []string{restartStamp, drainHash, restartStamp + withoutCA, drainHash + withoutCA} {
		if value := stamp(delivered, name); value != "" {
			noop.Env = append(noop.Env, name+"="+value)
		}
	}
	return []plans.Instruction{{CommonInstruction: noop}}
}

// What an installation is replaced by in apart.
const noopCommand = "/bin/sh"

var noopArgs = []string{"-c", ":"}

// isNoop reports whether an installation was replaced by one that does nothing.
func isNoop(i plans.Instruction) bool {
	return i.Name == InstallInstruction && i.Command == noopCommand && slices.Equal(i.Args, noopArgs)
}

// withoutStart makes the installation leave the distribution stopped.
func withoutStart(c Cluster, instructions []plans.Instruction) []plans.Instruction {
	out := slices.Clone(instructions)
	for i := range out {
		if out[i].Name == InstallInstruction {
			out[i].Env = append(slices.Clone(out[i].Env), "INSTALL_"+c.names().EnvPrefix+"_SKIP_START=true")
		}
	}
	return out
}

// script is an instruction that runs the text of a script with arguments, which no shell interprets. Its output is kept in the plan Secret.
func (t *taskBuilder) script(name, text string, args ...string) plans.Instruction {
	return plans.Instruction{SaveOutput: true, CommonInstruction: plans.CommonInstruction{
		Name: name, Command: "/bin/sh", Args: append([]string{"-c", text, name}, args...),
		Env: []string{t.id, t.Cluster.names().EnvPrefix + "_DATA_DIR=" + t.dataDir},
	}}
}

// target reports whether the snapshot is restored on this machine.
func (t *taskBuilder) target() (*operationv1.ETCDSnapshotRestore, bool) {
	op, is := t.op.(*operationv1.ETCDSnapshotRestore)
	return op, is && op.Status.MachineName == t.Machine.Name
}

func (t *taskBuilder) file() operationv1.RestoredSnapshot {
	if op, is := t.target(); is && op.Status.Snapshot != nil {
		return *op.Status.Snapshot
	}
	return operationv1.RestoredSnapshot{}
}

// checkSnapshot has the server on the machine list the bucket of a snapshot in S3. It needs no credential among its arguments: those of the
// bucket are in the configuration file.
func (t *taskBuilder) checkSnapshot() plans.Instruction {
	file := t.file()
	args := []string{file.Path, strconv.FormatInt(file.Size, 10), t.dataDir, file.SHA256, file.Name}
	if file.S3 != nil && t.hasS3Settings() {
		args = append(args, string(t.Cluster.Release.Runtime))
		args = append(args, bucketArgs(*file.S3)...)
	}
	i := t.script(string(operation.TaskCheckSnapshot), restoreCheckSh, args...)
	i.Env = append(i.Env, t.snapshotServer()...)
	return i
}

// hasS3Settings reports whether the machine runs with the settings of S3 that a restore would bring along. With others, such as keys that
// were corrected just before the restore and wait for it, what the machine can read now says nothing.
func (t *taskBuilder) hasS3Settings() bool {
	applied, known := configOf(t.Cluster.Release.Runtime, t.before)
	if !known || t.Machine.Unapplied {
		return false
	}
	t.addEtcdArgs()
	for _, f := range t.files { // the certificate authority of the endpoint
		if !slices.ContainsFunc(t.before.Files, func(b plans.File) bool { return b.Path == f.Path && b.Content == f.Content }) {
			return false
		}
	}
	return s3Args(applied) == s3Args(t.args)
}

// s3Args are the arguments about S3 as a text that can be compared.
func s3Args(config args) string {
	kept := maps.Clone(config)
	maps.DeleteFunc(kept, func(key string, _ any) bool { return !strings.HasPrefix(key, "etcd-s3") })
	kept.prune()
	text, _ := json.Marshal(kept) // with sorted keys
	return string(text)
}

// stop has the members of etcd join without their data whenever they start, except the machine that is restored: alone, it would start
// another cluster.
func (t *taskBuilder) stop() plans.Instruction {
	etcd := "keep"
	if _, is := t.target(); !is && t.Machine.Etcd {
		etcd = "leave"
	}
	return t.script(string(operation.TaskStop), restoreStopSh, string(t.Cluster.Release.Runtime), t.dataDir, etcd)
}

// restoreSnapshot needs no credential among its arguments: those of the bucket are in the configuration file.
func (t *taskBuilder) restoreSnapshot() plans.Instruction {
	file := t.file()
	args := []string{string(t.Cluster.Release.Runtime), t.dataDir, t.snapshotFolder()}
	if s3 := file.S3; s3 != nil {
		args = append(args, "--cluster-reset-restore-path="+file.Name)
		args = append(args, bucketArgs(*s3)...)
	} else {
		args = append(args, "--cluster-reset-restore-path="+file.Path, "--etcd-s3=false")
	}
	i := t.script(string(operation.TaskRestoreSnapshot), restoreResetSh, args...)
	i.TimeoutSeconds = resetTimeout
	for _, v := range t.Cluster.Spec.AgentEnvVars { // a proxy, perhaps
		if v.Name != "" && v.Value != "" {
			i.Env = append(i.Env, v.Name+"="+v.Value)
		}
	}
	return i
}

// bucketArgs are the arguments by which the distribution's command uses the bucket of a snapshot.
func bucketArgs(s3 operationv1.RestoredSnapshotS3) []string {
	args := []string{"--etcd-s3"}
	for _, v := range []struct{ flag, value string }{{"bucket", s3.Bucket}, {"folder", s3.Folder}, {"region", s3.Region}} {
		switch {
		case v.flag == "folder" && v.value == operationv1.BucketRoot:
			args = append(args, "--etcd-s3-folder=") // that of the configuration does not count
		case v.value != "":
			args = append(args, "--etcd-s3-"+v.flag+"="+v.value)
		}
	}
	return args
}

// rejoin comes before the installation, which starts the distribution. A machine with Windows was not stopped: the installation restarts it
// where its configuration is another than before.
func (t *taskBuilder) rejoin() []plans.Instruction {
	if _, is := t.target(); is || t.Machine.windows() {
		return nil
	}
	role := "worker"
	if t.Machine.server() {
		role = "server"
	}
	return []plans.Instruction{t.script("forget", restoreRejoinSh, fmt.Sprint(t.op.GetUID()), t.provisioningDir()+"/restore",
		string(t.Cluster.Release.Runtime), t.dataDir, role)}
}

func (t *taskBuilder) awaitStart() plans.Instruction {
	if t.Machine.windows() {
		return t.nothing(string(operation.TaskStart))
	}
	names := t.Cluster.names()
	unit := names.AgentUnit
	if t.Machine.server() {
		unit = names.ServerUnit
	}
	return t.script(string(operation.TaskStart), restoreWaitSh, unit+".service", strconv.Itoa(readyTimeout))
}
