package render

import (
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The plans of all cases, for people to read; each is valid, and rendering it again on top of itself changes nothing.
func TestPlanGolden(t *testing.T) {
	cases := goldenCases(t)
	if len(cases) < 40 {
		t.Errorf("only %d cases", len(cases))
	}
	for name, in := range cases {
		t.Run(name, func(t *testing.T) {
			plan, problems := Plan(in)
			if plan.Error == "" {
				if err := plan.Validate(); err != nil {
					t.Errorf("the plan is not valid: %v", err)
				}
			}
			golden(t, name, show(plan, problems))
			in.Delivered = plan
			again, _ := Plan(in)
			if diff := cmp.Diff(encoded(t, plan), encoded(t, again)); diff != "" {
				t.Errorf("what was delivered renders to something else:\n%s", diff)
			}
			if got := ImpactOf(plan, again); got != ImpactNone {
				t.Errorf("what was delivered has the impact %s", got)
			}
		})
	}
}

// Everything that the hub writes into a machine's configuration is an argument that its release takes there.
func TestOnlyKnownArguments(t *testing.T) {
	for name, in := range goldenCases(t) {
		plan, problems := Plan(in)
		if in.Cluster.Release.Assumed != "" || problems.Err() != nil {
			continue
		}
		for _, f := range plan.Files {
			if !strings.HasSuffix(f.Path, "/50-rancher.yaml") {
				continue
			}
			content, err := base64.StdEncoding.DecodeString(f.Content)
			if err != nil {
				t.Fatal(err)
			}
			var config map[string]any
			if err := json.Unmarshal(content, &config); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			for key := range config {
				if _, known := in.Cluster.Release.Arg(key, in.Machine.server()); !known {
					t.Errorf("%s: %s is no argument of %s on this machine", name, key, in.Cluster.Release.Version)
				}
			}
		}
	}
}

// However often and in whatever order maps give their entries, a plan is the same bytes. Inputs are created again each time, since the
// order of a map's entries is drawn when it is ranged over and depends on how it was filled.
func TestDeterminism(t *testing.T) {
	for _, version := range []string{k3s, rke2} {
		plan, problems := Plan(everything(t, version))
		want := encoded(t, plan)
		for i := range 1000 {
			in := everything(t, version)
			if i%2 == 1 {
				in.Cluster.Objects = refilled(in.Cluster.Objects)
				in.Cluster.Spec.MachineGlobalConfig.Data = refilled(in.Cluster.Spec.MachineGlobalConfig.Data)
				in.Cluster.Spec.ChartValues.Data = refilled(in.Cluster.Spec.ChartValues.Data)
				in.Cluster.Spec.Registries.Configs = refilled(in.Cluster.Spec.Registries.Configs)
				in.Cluster.Spec.Registries.Mirrors = refilled(in.Cluster.Spec.Registries.Mirrors)
				in.Machine.NodeLabels = refilled(in.Machine.NodeLabels)
			}
			again, others := Plan(in)
			if got := encoded(t, again); got != want {
				t.Fatalf("render %d differs:\n%s", i, cmp.Diff(want, got))
			}
			if !slices.Equal(problems, others) {
				t.Fatalf("render %d has other problems: %v, %v", i, problems, others)
			}
		}
	}
}

// refilled is a map with the same entries that was filled in another order and shrunk.
func refilled[K comparable, V any](m map[K]V) map[K]V {
	out := make(map[K]V, 64)
	var keys []K
	for k := range m {
		keys = append(keys, k)
	}
	for _, k := range slices.Backward(keys) {
		out[k] = m[k]
	}
	return out
}
