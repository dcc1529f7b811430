package render

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	"github.com/drover-dev/drover/hub/plan/operation"
	"github.com/drover-dev/drover/hub/plan/release"
	"github.com/drover-dev/drover/plans"
)

// operationEnv is the environment variable by which instructions of an operation are known. Its value is the UID of the operation, a slash,
// and the step.
const operationEnv = "DROVER_OPERATION"

// RestartInstruction is the name of the instruction of an operation that stops or restarts the distribution.
const RestartInstruction = "operation-restart"

// WithTask returns a plan with the instructions of a task, and without those of any other operation or step.
func WithTask(c Cluster, m Machine, plan plans.Plan, op operationv1.Operation, task operation.Task) plans.Plan {
	t := taskBuilder{builder: builder{Inputs: Inputs{Cluster: c, Machine: m}}, id: taskID(op, task.Step), op: op, before: plan}
	t.builder.mergeArgs()
	stopped := Stopped(plan)
	plan = WithoutTask(plan)
	if c.Bootstrapped {
		plan.Files = t.withoutAuthorities(plan.Files) // the delivered plan may have them, and they may have been replaced since
	}
	switch task.Name {
	case operation.TaskStop:
		plan.Instructions, plan.PeriodicInstructions = nil, nil
	case operation.TaskRestoreSnapshot:
		plan.Instructions = withoutStart(t.Cluster, plan.Instructions)
	case operation.TaskStart:
		plan.Instructions = append(t.rejoin(), plan.Instructions...)
	case operation.TaskConfigureToken:
		plan.Files = t.withTokens(plan.Files)
	default:
		if task.Apart {
			plan.Instructions = t.apart(plan, stopped)
		}
	}
	plan.Instructions = append(plan.Instructions, t.instructions(task.Name)...)
	return plan
}

// HasTask reports whether a plan has the instructions of an operation in a step.
func HasTask(plan plans.Plan, op operationv1.Operation, step string) bool {
	id := taskID(op, step)
	return slices.ContainsFunc(plan.Instructions, func(i plans.Instruction) bool { return slices.Contains(i.Env, id) })
}

// WithoutTask returns a plan without instructions of operations.
func WithoutTask(plan plans.Plan) plans.Plan {
	plan.Instructions = slices.DeleteFunc(slices.Clone(plan.Instructions), ofOperation)
	return plan
}

func ofOperation(i plans.Instruction) bool {
	return slices.ContainsFunc(i.Env, func(v string) bool { return strings.HasPrefix(v, operationEnv+"=") })
}

// restarts are the instructions of operations by which a plan restarts the distribution.
func restarts(plan plans.Plan) (ids []string) {
	for _, i := range plan.Instructions {
		if i.Name == RestartInstruction && ofOperation(i) {
			ids = append(ids, i.Env...)
		}
	}
	return ids
}

func taskID(op operationv1.Operation, step string) string {
	return fmt.Sprintf("%s=%s/%s", operationEnv, op.GetUID(), step)
}

// taskBuilder makes the instructions of a task.
type taskBuilder struct {
	builder
	op operationv1.Operation
	id string
	// before is the plan that the task is put into.
	before plans.Plan
}

func (t *taskBuilder) instructions(name operation.TaskName) []plans.Instruction {
	switch name {
	case operation.TaskSaveSnapshot:
		i := t.once(string(name), "/bin/sh", t.saveSnapshot()...)
		i.Env = append(i.Env, t.snapshotServer()...)
		return []plans.Instruction{i}
	case operation.TaskDeleteSnapshot:
		return []plans.Instruction{t.deleteSnapshot()}
	case operation.TaskRotateCertificates:
		return []plans.Instruction{t.rotateCertificates()}
	case operation.TaskPing:
		return []plans.Instruction{t.script(string(name), ":")}
	case operation.TaskCheckSnapshot:
		// The distribution will be started with its configuration, whatever the machine was prepared for when it started before.
		return append(t.hostCheck("/dev/null", t.id, restartStamp+"=restore"), t.checkSnapshot())
	case operation.TaskStop:
		return []plans.Instruction{t.stop()}
	case operation.TaskRestoreSnapshot:
		return []plans.Instruction{t.restoreSnapshot()}
	case operation.TaskStart:
		return []plans.Instruction{t.awaitStart()}
	case operation.TaskRestartServer:
		return []plans.Instruction{t.restartServer()}
	case operation.TaskRotateToken:
		return []plans.Instruction{t.serverToken(string(name), "rotate", t.Cluster.Tokens.NewServer, t.Cluster.Tokens.NewAgent)}
	case operation.TaskConfigureToken:
		return []plans.Instruction{t.configureToken(string(name))}
	case operation.TaskCheckToken:
		return []plans.Instruction{t.serverToken(string(name), "check", t.Cluster.Tokens.Server, "")}
	}
	if step, is := encryptionSteps[name]; is {
		return []plans.Instruction{t.encryptionKeys(string(name), step)}
	}
	panic(fmt.Sprintf("render: no instructions are known for the task %s", name))
}

// once is an instruction that runs a command with arguments, once in each attempt at a plan, also if another plan has it too. Its output is
// kept in the plan Secret.
func (t *taskBuilder) once(name, command string, args ...string) plans.Instruction {
	dir := t.provisioningDir()
	return plans.Instruction{CommonInstruction: plans.CommonInstruction{
		Name: name, Command: "/bin/sh", Env: []string{t.id},
		Args: append([]string{dir + "/idempotence/idempotent.sh", name, hexOf(t.id), hexOf(command), command, dir}, args...),
	}, SaveOutput: true}
}

// saveSnapshot are the arguments of a shell that saves a snapshot and checks its file.
func (t *taskBuilder) saveSnapshot() []string {
	folder, name := t.snapshotFolder(), "on-demand"
	var args []string
	op, is := t.op.(*operationv1.ETCDSnapshotSave)
	if is {
		folder, name = cmp.Or(op.Spec.Args.Dir, folder), cmp.Or(op.Spec.Args.Name, name)
		args = saveArgs(op)
	}
	return append([]string{"-c", saveSnapshotSh, "save-snapshot", string(t.Cluster.Release.Runtime), folder, name, t.uploads()}, args...)
}

// snapshotFolder is where the machine keeps its snapshots, by the configuration in the plan: the specification may have another one that
// waits.
func (t *taskBuilder) snapshotFolder() string {
	folder, _ := t.all["etcd-snapshot-dir"].(string)
	if applied, known := configOf(t.Cluster.Release.Runtime, t.before); known {
		folder = applied.text("etcd-snapshot-dir")
	}
	return cmp.Or(folder, t.dataDir+"/server/db/snapshots")
}

// uploads is "true" where the machine uploads snapshots to a bucket, "later" where only the specification says so, and "false" otherwise.
func (t *taskBuilder) uploads() string {
	etcd := t.Cluster.Spec.ETCD
	wanted, _ := t.all["etcd-s3"].(bool)
	wanted = wanted || etcd != nil && UsesBucket(etcd.S3)
	has := wanted
	if applied, known := configOf(t.Cluster.Release.Runtime, t.before); known {
		has, _ = applied["etcd-s3"].(bool)
	}
	switch {
	case has:
		return "true"
	case wanted:
		return "later"
	}
	return "false"
}

// firstSnapshotServer is the first minor whose command for snapshots takes a server in all releases. Earlier ones open etcd themselves.
const firstSnapshotServer = 31

// snapshotServer is the variable by which scripts give the command for snapshots the server on the machine. The command knows no
// configuration of the server: it asks 127.0.0.1 at the port that the distribution has by default. It is empty where that is right.
func (t *taskBuilder) snapshotServer() []string {
	otherPort := t.Cluster.Release.Runtime == release.K3s && APIPort(t.Cluster) != release.APIServerPort
	if t.Cluster.Release.Minor < firstSnapshotServer || !otherPort && t.serverHost() == t.loopback() {
		return nil
	}
	return []string{"SNAPSHOT_SERVER=" + t.supervisorURL()}
}

func saveArgs(op *operationv1.ETCDSnapshotSave) (args []string) {
	if op.Spec.Args.Name != "" {
		args = append(args, "--name", op.Spec.Args.Name)
	}
	if op.Spec.Args.Compress {
		args = append(args, "--etcd-snapshot-compress")
	}
	if op.Spec.Args.Dir != "" {
		args = append(args, "--etcd-snapshot-dir", op.Spec.Args.Dir)
	}
	return args
}

// nothing is an instruction that does nothing: the rest of the plan does the task, on a machine with any operating system.
func (t *taskBuilder) nothing(name string) plans.Instruction {
	i := plans.CommonInstruction{Name: name, Command: "/bin/sh", Args: []string{"-c", "exit 0"}, Env: []string{t.id}}
	if t.Machine.windows() {
		i.Command, i.Args = "powershell.exe", []string{"-Command", "exit 0"}
	}
	return plans.Instruction{CommonInstruction: i}
}

func hexOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}
