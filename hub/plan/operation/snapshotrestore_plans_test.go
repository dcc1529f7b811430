package operation

import (
	"strings"
	"testing"

	"sigs.k8s.io/cluster-api/util/conditions"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	"github.com/drover-dev/drover/hub/plan/rollout"
)

// TestRestoreWaitsForPlans: a machine for which no plan can be rendered, such as while a Secret is missing, would be stopped and not be
// started.
func TestRestoreWaitsForPlans(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*Inputs)
		want   string
	}{
		"the restored machine": {func(in *Inputs) { in.Machines[0].Problem = "S is missing" }, "Waiting for the plan of a, without which a " +
			"restore could not start the machine: S is missing"},
		"another server": {func(in *Inputs) { in.Machines[1].Problem = "S is missing" }, "Waiting for the plan of b,"},
		"a worker":       {func(in *Inputs) { in.Machines[2].Problem = "S is missing" }, "Waiting for the plan of w,"},
		"several":        {func(in *Inputs) { in.Machines[1].Problem, in.Machines[2].Problem = "S", "T" }, "the machine: S"},
		"a server whose report cannot be read": {func(in *Inputs) {
			in.Machines[1].Problem, in.Machines[1].Progress = "no JSON", rollout.ProgressNone
		}, "Waiting for the plan of b,"},
		"a worker that has no plan": {func(in *Inputs) {
			in.Machines[2].Problem, in.Machines[2].Progress = "S is missing", rollout.ProgressNone
		}, ""},
		"a machine that is being deleted": {func(in *Inputs) {
			in.Machines[2].Problem, in.Machines[2].Deleting = "S is missing", true
		}, ""},
	} {
		op := restoreOf("s")
		in := Inputs{Now: begin, Bootstrapped: true, Snapshot: onMachine("a"), Machines: []Machine{server("a"), server("b"), worker("w")}}
		tc.change(&in)
		d := Decide(op, in)
		text := conditions.GetMessage(op, operationv1.SucceededCondition)
		waits := op.Status.Phase == operationv1.PhasePending && len(d.Tasks) == 0
		if waits != (tc.want != "") || !strings.Contains(text, tc.want) {
			t.Errorf("%s: got %s, %q", name, op.Status.Phase, text)
		}
	}
}
