package render

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	"github.com/drover-dev/drover/plans"
)

// saveSnapshot is the name of the instruction that saves a snapshot of etcd.
const saveSnapshot = "etcd-snapshot-save"

// WithSnapshotSave returns a plan with the instruction of an ETCDSnapshotSave, and without that of any other. It restarts nothing. The
// instruction runs once in each attempt at a plan, also if another plan has it too.
func WithSnapshotSave(c Cluster, plan plans.Plan, op *operationv1.ETCDSnapshotSave) plans.Plan {
	plan = withoutSnapshotSave(plan)
	args := []string{"etcd-snapshot", "save"}
	if op.Spec.Args.Name != "" {
		args = append(args, "--name", op.Spec.Args.Name)
	}
	if op.Spec.Args.Compress {
		args = append(args, "--etcd-snapshot-compress")
	}
	if op.Spec.Args.Dir != "" {
		args = append(args, "--etcd-snapshot-dir", op.Spec.Args.Dir)
	}
	b := builder{Inputs: Inputs{Cluster: c}}
	command := string(c.Release.Runtime)
	plan.Instructions = append(plan.Instructions, plans.Instruction{CommonInstruction: plans.CommonInstruction{
		Name: saveSnapshot, Command: "/bin/sh",
		Args: append([]string{b.provisioningDir() + "/idempotence/idempotent.sh", saveSnapshot, hexOf(string(op.UID)), hexOf(command), command,
			b.provisioningDir()}, args...),
	}, SaveOutput: true})
	return plan
}

// HasSnapshotSave reports whether a plan has the instruction of an ETCDSnapshotSave.
func HasSnapshotSave(plan plans.Plan, op *operationv1.ETCDSnapshotSave) bool {
	return slices.ContainsFunc(plan.Instructions, func(i plans.Instruction) bool {
		return i.Name == saveSnapshot && slices.Contains(i.Args, hexOf(string(op.UID)))
	})
}

func withoutSnapshotSave(plan plans.Plan) plans.Plan {
	plan.Instructions = slices.DeleteFunc(slices.Clone(plan.Instructions), func(i plans.Instruction) bool { return i.Name == saveSnapshot })
	return plan
}

func hexOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}
