package render

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/plan/release"
)

// TestAppendedArguments: what one selector appends to an argument is not lost when another one appends, too.
func TestAppendedArguments(t *testing.T) {
	for name, tc := range map[string]struct {
		global         string
		selected       []string
		base, appended any
	}{
		"by one": {`{"kubelet-arg": "a=1"}`, []string{`{"kubelet-arg+": "b=2"}`}, "a=1", "b=2"},
		"by two": {`{"kubelet-arg": "a=1"}`, []string{`{"kubelet-arg+": "b=2"}`, `{"kubelet-arg+": ["c=3"]}`}, "a=1", []any{"b=2", "c=3"}},
		"by all": {`{"kubelet-arg+": ["a=1"]}`, []string{`{"kubelet-arg+": ["b=2", "c=3"]}`, `{"kubelet-arg+": {"d": 4}}`}, nil,
			[]any{"a=1", "b=2", "c=3", "d=4"}},
		"replaced":            {`{"kubelet-arg+": "a=1"}`, []string{`{"kubelet-arg": "b=2"}`}, "b=2", nil},
		"replaced and more":   {`{"kubelet-arg+": "a=1"}`, []string{`{"kubelet-arg": "b=2", "kubelet-arg+": "c=3"}`}, "b=2", "c=3"},
		"removed":             {`{"kubelet-arg+": "a=1"}`, []string{`{"kubelet-arg+": null}`}, nil, nil},
		"removed and another": {`{"kubelet-arg+": "a=1"}`, []string{`{"kubelet-arg+": null}`, `{"kubelet-arg+": "b=2"}`}, nil, "b=2"},
	} {
		for _, roles := range []string{"ec", "w"} {
			in := machineOf(t, k3s, "a", roles)
			in.Cluster.Spec.MachineGlobalConfig = config(t, tc.global)
			for _, selected := range tc.selected {
				in.Cluster.Spec.MachineSelectorConfig = append(in.Cluster.Spec.MachineSelectorConfig,
					rkev1.RKESystemConfig{Config: config(t, selected)})
			}
			plan, problems := Plan(in)
			got, known := configOf(release.K3s, plan)
			if err := problems.Err(); err != nil || !known {
				t.Fatalf("%s: %v", name, err)
			}
			if diff := cmp.Diff([]any{tc.base, tc.appended}, []any{got["kubelet-arg"], got["kubelet-arg+"]}); diff != "" {
				t.Errorf("%s on %s (-want +got):\n%s", name, roles, diff)
			}
		}
	}
}
