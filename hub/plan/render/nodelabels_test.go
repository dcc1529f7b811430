package render

import (
	"strings"
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

// TestLabelsInOneText: a text may be in the place of a list, and hold several labels. Without them, the plan would not be delivered.
func TestLabelsInOneText(t *testing.T) {
	in := machineOf(t, k3s, "a", "w")
	in.Cluster.Spec.MachineGlobalConfig = config(t,
		`{"node-label": "zone=a,node-role.kubernetes.io/db=true,tier=db", "node-label+": "disk=ssd,fast=", "debug": true}`)
	plan, problems := Plan(in)
	if len(problems) != 1 || !strings.Contains(problems[0].Message, "node-role.kubernetes.io/db") {
		t.Errorf("problems %v", problems)
	}
	if file := fileOf(t, plan, "/etc/rancher/k3s/config.yaml.d/50-rancher.yaml"); strings.Contains(file, "node-role") {
		t.Errorf("the kubelet would not start with %s", file)
	}
	got, err := NodeLabels(in.Cluster, plan)
	want := map[string]string{"zone": "a", "tier": "db", "disk": "ssd", "fast": "", "rke.cattle.io/machine": "uid-a"}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}
