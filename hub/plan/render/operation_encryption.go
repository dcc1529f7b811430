package render

import (
	_ "embed"
	"fmt"
	"time"

	"github.com/drover-dev/drover/hub/plan/operation"
	"github.com/drover-dev/drover/hub/plan/release"
	"github.com/drover-dev/drover/plans"
)

// encryptionKeysSh is handed to sh with the instruction: it is no file of the plan, which an operation leaves as it was delivered.
//
//go:embed scripts/encryption-keys.sh
var encryptionKeysSh string

// encryptionSteps are the first arguments of the script, by task.
var encryptionSteps = map[operation.TaskName]string{
	operation.TaskRotateKeys: "rotate-keys", operation.TaskPrepareKey: "prepare", operation.TaskRotatePreparedKey: "rotate",
	operation.TaskReencrypt: "reencrypt", operation.TaskVerifyKeys: "verify",
}

const (
	// encryptionPoll is the time between two looks at the status.
	encryptionPoll = 5 * time.Second
	// scriptMargin is how long before the operation gives up on a machine its script does, so that its reason is reported.
	scriptMargin = 3 * time.Minute
	// serverRestartTimeout is how long systemd may take to restart a server.
	serverRestartTimeout = 15 * time.Minute
)

// encryptionKeys runs a step of the script. Its state is in a folder of the operation.
func (t *taskBuilder) encryptionKeys(name, step string) plans.Instruction {
	limit := operation.RotateTimeout
	if step == "verify" {
		limit = operation.VerifyTimeout
	}
	names := t.Cluster.names()
	kubectl := []string{names.Runtime, "kubectl"}
	if names.Runtime == release.RKE2 {
		kubectl = []string{t.dataDir + "/bin/kubectl"}
	}
	args := []string{"-c", encryptionKeysSh, "encryption-keys", step, t.stateDir(), seconds(limit - scriptMargin), seconds(encryptionPoll),
		names.Runtime, t.supervisorURL()}
	args = append(append(args, kubectl...), "--kubeconfig", t.dataDir+"/server/cred/admin.kubeconfig")
	return plans.Instruction{CommonInstruction: plans.CommonInstruction{
		Name: name, Command: "/bin/sh", Args: args, Env: t.distributionEnv(), TimeoutSeconds: int(limit / time.Second),
	}, SaveOutput: true}
}

// restartServer restarts the distribution, which ends when it has started. A restart that is cut off may be done again.
func (t *taskBuilder) restartServer() plans.Instruction {
	return plans.Instruction{CommonInstruction: plans.CommonInstruction{
		Name: RestartInstruction, Command: "systemctl", Args: []string{"restart", t.Cluster.names().ServerUnit}, Env: []string{t.id},
		TimeoutSeconds: int(serverRestartTimeout / time.Second),
	}}
}

// stateDir is where instructions of the operation keep what they have done.
func (t *taskBuilder) stateDir() string {
	return fmt.Sprintf("%s/operations/%s", t.provisioningDir(), t.op.GetUID())
}

// supervisorURL is that of the machine's own server. The distribution's commands would ask the one that the machine has joined.
func (t *taskBuilder) supervisorURL() string {
	return fmt.Sprintf("https://%s:%d", t.serverHost(), supervisorPort(t.Cluster))
}

// distributionEnv is the environment of a command of the distribution.
func (t *taskBuilder) distributionEnv() []string {
	names := t.Cluster.names()
	if t.dataDir == names.DataDir {
		return []string{t.id}
	}
	return []string{t.id, names.EnvPrefix + "_DATA_DIR=" + t.dataDir}
}

func seconds(d time.Duration) string { return fmt.Sprintf("%d", int(d/time.Second)) }
