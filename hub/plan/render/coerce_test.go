package render

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/drover-dev/drover/hub/plan/release"
)

func TestCoerce(t *testing.T) {
	tests := map[string]struct {
		t       release.ArgType
		value   any
		want    any
		wantErr string
	}{
		"bool":                  {release.Bool, true, true, ""},
		"bool as text":          {release.Bool, "False", false, ""},
		"bool as number":        {release.Bool, int64(1), nil, "is a number; it takes true or false"},
		"int":                   {release.Int, int64(7), int64(7), ""},
		"int as float":          {release.Int, float64(7), int64(7), ""},
		"int as text":           {release.Int, " 7 ", int64(7), ""},
		"int as json number":    {release.Int, json.Number("7"), int64(7), ""},
		"int as Go int":         {release.Int, 7, int64(7), ""},
		"fraction":              {release.Int, 7.5, nil, "is a number; it takes a whole number"},
		"huge float":            {release.Int, 1e300, nil, "is a number; it takes a whole number"},
		"int as bool":           {release.Int, true, nil, "is a boolean; it takes a whole number"},
		"text":                  {release.String, "x", "x", ""},
		"text as number":        {release.String, 1.5, "1.5", ""},
		"text as list":          {release.String, []any{"x"}, nil, "is a list; it takes a text"},
		"list":                  {release.List, []any{"a", int64(1), true}, []string{"a", "1", "true"}, ""},
		"list of Go texts":      {release.List, []string{"a"}, []string{"a"}, ""},
		"list as text":          {release.List, "a,b", "a,b", ""},
		"list with nothing in":  {release.List, []any{}, []string{}, ""},
		"list with a map in it": {release.List, []any{map[string]any{}}, nil, "has a map at place 0; it takes a list of texts"},
		"list as map":           {release.List, map[string]any{"b": int64(2), "a": "1", "c": true}, []string{"a=1", "b=2", "c=true"}, ""},
		"list as deep map": {release.List, map[string]any{"b": []any{}}, nil,
			`has a list at "b"; it takes a list of texts, or a map of them`},
		"text as map":           {release.String, map[string]any{"a": "b"}, nil, "is a map; it takes a text"},
		"anything: text":        {release.Any, "x", "x", ""},
		"anything: text number": {release.Any, "007", "007", ""},
		"anything: bool":        {release.Any, true, true, ""},
		"anything: number":      {release.Any, int64(7), int64(7), ""},
		"anything: fraction":    {release.Any, 1.5, "1.5", ""},
		"anything: list":        {release.Any, []any{"a", int64(1)}, []string{"a", "1"}, ""},
		"anything: map":         {release.Any, map[string]any{"a": "b"}, []string{"a=b"}, ""},
		"odd Go type":           {release.List, struct{}{}, nil, "is a struct {}; it takes a list of texts"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := coerce(tc.t, tc.value)
			var text string
			if err != nil {
				text = err.Error()
			}
			if diff := cmp.Diff(tc.wantErr, text); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestKubeconfigMode: permissions without quotes are another number by the time that the API server has them.
func TestKubeconfigMode(t *testing.T) {
	for value, want := range map[string]string{
		`416`: "is the number 416, which YAML makes of 0640;", `420`: "is the number 420, which YAML makes of 0644;",
		`384`: "is the number 384, which YAML makes of 0600;", `"0640"`: "", `"416"`: "", `644`: "", `600`: "", `"u=rw"`: "", `null`: "",
	} {
		in := machineOf(t, rke2, "a", "ec")
		in.Cluster.Spec.MachineGlobalConfig = config(t, `{"write-kubeconfig-mode": `+value+`}`)
		plan, _ := Plan(in)
		if (plan.Error != "") != (want != "") || !strings.Contains(plan.Error, want) {
			t.Errorf("%s: got %q", value, plan.Error)
		}
	}
}

// TestKubeconfigModeOfStartedCluster: a cluster that runs with such permissions since before they were refused is warned, and goes on.
func TestKubeconfigModeOfStartedCluster(t *testing.T) {
	delivered := func(text string) func(*testing.T, *Inputs) {
		return func(t *testing.T, in *Inputs) {
			before := machineOf(t, rke2, "a", "ec")
			before.Cluster.Spec.MachineGlobalConfig = config(t, text)
			in.Delivered, _ = Plan(before)
		}
	}
	for name, tc := range map[string]struct {
		roles   string
		change  func(*testing.T, *Inputs)
		refused bool
		warned  bool
	}{
		"runs with it":                 {roles: "ec", change: delivered(`{"write-kubeconfig-mode": "416"}`), warned: true},
		"joins":                        {roles: "ec", change: func(*testing.T, *Inputs) {}, warned: true},
		"runs with others":             {roles: "ec", change: delivered(`{"write-kubeconfig-mode": "0600"}`), refused: true},
		"runs with those of a default": {roles: "ec", change: delivered(`{}`), refused: true},
		"a worker, which has none":     {roles: "w", change: func(*testing.T, *Inputs) {}},
	} {
		in := machineOf(t, rke2, "a", tc.roles)
		in.Cluster.Bootstrapped = true
		in.Cluster.Spec.MachineGlobalConfig = config(t, `{"write-kubeconfig-mode": 416}`)
		tc.change(t, &in)
		plan, problems := Plan(in)
		warned := false
		for _, p := range problems {
			warned = warned || p.Kept && strings.Contains(p.Message, "is the number 416, which YAML makes of 0640;")
		}
		if (plan.Error != "") != tc.refused || warned != tc.warned {
			t.Errorf("%s: the plan has the error %q, warned %t: %v", name, plan.Error, warned, problems)
		}
	}
}
