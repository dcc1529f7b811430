package render

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The labels that a plan's configuration has are those that the distribution would give to the Node at its next start.
func TestNodeLabels(t *testing.T) {
	in := machineOf(t, k3s, "a", "w")
	in.Cluster.Spec.MachineGlobalConfig = config(t,
		`{"node-label": ["zone=a", "empty=", "node-role.kubernetes.io/worker=true"], "node-label+": ["disk=ssd"]}`)
	plan, _ := Plan(in)
	got, err := NodeLabels(in.Cluster, plan)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"zone": "a", "empty": "", "disk": "ssd", "rke.cattle.io/machine": "uid-a"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	// Labels restart nothing, so that they have to reach the Node in another way.
	in.Cluster.Spec.MachineGlobalConfig = config(t, `{"node-label": ["zone=b"]}`)
	changed, _ := Plan(in)
	if before, after := plan.Instructions[0].Env, changed.Instructions[0].Env; !cmp.Equal(before, after) {
		t.Errorf("a label restarts the distribution: %s", cmp.Diff(before, after))
	}
	if got, err := NodeLabels(in.Cluster, changed); err != nil || got["zone"] != "b" {
		t.Errorf("got %v, %v", got, err)
	}
}
