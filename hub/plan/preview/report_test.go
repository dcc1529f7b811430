package preview

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/drover-dev/drover/hub/plan/rollout"
	"github.com/drover-dev/drover/plans"
)

func TestMachines(t *testing.T) {
	state := func(name string, change rollout.Change) rollout.Machine {
		return rollout.Machine{Name: name, Worker: true, Change: change}
	}
	before, after := plans.Plan{Files: []plans.File{file("/a.yaml", "a: 1")}}, plans.Plan{Files: []plans.File{file("/a.yaml", "a: 2")}}
	labels := Pair{Before: map[string]string{"zone": "a", "disk": "hdd"}, After: map[string]string{"disk": "ssd", "new": "x"}}
	got := Machines([]Subject{
		{Name: "b", Pool: "replaced", State: state("b", rollout.ChangeDrain), Before: before, After: after},
		{Name: "a", Pool: "other", State: state("a", rollout.ChangeMinor), Before: before, After: before, Labels: labels},
		{Name: "c", State: state("c", rollout.ChangeFirst)},
	}, []Pool{{Name: "replaced", Impact: ImpactReplace}}, NewMask(nil, nil, nil))

	var lines []string
	for _, m := range got {
		lines = append(lines, m.Name+" "+string(m.Impact))
		for _, c := range m.Changes {
			lines = append(lines, "  "+string(c.Kind)+" "+c.What+" "+c.Name)
		}
	}
	want := []string{
		"a none", "  change label disk=ssd", "  add label new=x", "  remove label zone=a",
		"b replace", "  change file /a.yaml",
		"c install",
	}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestFinish(t *testing.T) {
	for name, test := range map[string]struct {
		report  Report
		changes bool
		impact  Impact
	}{
		"nothing":             {Report{Machines: []Machine{{Impact: ImpactNone}}}, false, ImpactNone},
		"a label":             {Report{Machines: []Machine{{Impact: ImpactNone, Changes: []Change{{What: "label"}}}}}, true, ImpactNone},
		"the worst of all":    {Report{Machines: []Machine{{Impact: ImpactDrain}, {Impact: ImpactRestart}}}, true, ImpactDrain},
		"a pool is taken out": {Report{Machines: []Machine{{Impact: ImpactDrain}}, Pools: []Pool{{Impact: ImpactRemove}}}, true, ImpactRemove},
	} {
		t.Run(name, func(t *testing.T) {
			test.report.Finish()
			if test.report.Changes != test.changes || test.report.Impact != test.impact {
				t.Errorf("changes %v, impact %s", test.report.Changes, test.report.Impact)
			}
		})
	}
}

func TestWrite(t *testing.T) {
	change := Change{What: "file", Name: "/a.yaml", Kind: Modify, Diff: "--- /a.yaml\n+++ /a.yaml\n@@ -1 +1 @@\n-a: 1\n+a: 2\n"}
	report := &Report{
		Cluster: "ns/demo", Warnings: []string{"spec.x: is left out"}, Problems: []string{"spec.y: is wrong"},
		Pools: []Pool{{Name: "w", Impact: ImpactReplace, Notes: []string{"userdata changes"}}},
		Machines: []Machine{
			{Name: "m1", Roles: []string{"etcd", "worker"}, Impact: ImpactRestart, Changes: []Change{change}},
			{Name: "m2", Impact: ImpactRestart, Changes: []Change{change}, Problem: "no room"},
			{Name: "m3", Impact: ImpactNone},
		},
		Order: [][]string{{"m1"}, {"m2", "m4"}},
	}
	report.Finish()
	var out strings.Builder
	if err := report.Write(&out); err != nil {
		t.Fatal(err)
	}
	want := `Cluster ns/demo: 2 of 3 machines would change; most disruptive effect: replace
PROBLEM  spec.y: is wrong
warning  spec.x: is left out

Machine pool w: replace
  userdata changes

m1 (etcd, worker): restart
  ~ file /a.yaml
      @@ -1 +1 @@
      -a: 1
      +a: 2

m2: restart
  PROBLEM: no room
  same as m1

Order, if every change succeeds:
  1. m1
  2. m2, m4
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	for _, test := range []struct {
		report Report
		want   string
	}{
		{Report{Cluster: "a/b", Machines: []Machine{{Impact: ImpactNone}}}, "Cluster a/b: no change on its 1 machine\n"},
		{Report{Cluster: "a/b", Waiting: "Wrong version"}, "Cluster a/b: rendering plans is not possible yet. Wrong version\n"},
	} {
		var out strings.Builder
		if err := test.report.Write(&out); err != nil || out.String() != test.want {
			t.Errorf("got %q, error %v", out.String(), err)
		}
	}
}
