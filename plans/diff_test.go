package plans

import "testing"

func TestDiff(t *testing.T) {
	once := func(name string, args ...string) Instruction {
		return Instruction{CommonInstruction: CommonInstruction{Name: name, Args: args}}
	}
	tests := map[string]struct {
		before, after Plan
		want          string
		minor         bool
	}{
		"nothing": {before: Plan{Instructions: []Instruction{once("a")}}, after: Plan{Instructions: []Instruction{once("a", []string{}...)}},
			want: "no change"},
		"files": {
			before: Plan{Files: []File{{Path: "/a"}, {Path: "/b"}, {Path: "/c"}}},
			after:  Plan{Files: []File{{Path: "/a"}, {Path: "/b", Content: "YQ=="}, {Path: "/d"}}},
			want:   "files: +/d ~/b -/c",
		},
		"minor file": {
			before: Plan{Files: []File{{Path: "/a", Minor: true}, {Path: "/b"}}},
			after:  Plan{Files: []File{{Path: "/a", Minor: true, Content: "YQ=="}, {Path: "/b"}}},
			want:   "files: ~/a", minor: true,
		},
		"minor and other file": {
			before: Plan{Files: []File{{Path: "/a", Minor: true}, {Path: "/b"}}},
			after:  Plan{Files: []File{{Path: "/a", Minor: true, Content: "YQ=="}}},
			want:   "files: ~/a -/b",
		},
		"instructions, periodics and probes": {
			before: Plan{Instructions: []Instruction{once("install", "1"), once("")}, Probes: map[string]Probe{"p": {}}},
			after: Plan{Instructions: []Instruction{once("install", "2"), once("", "x")}, Probes: map[string]Probe{"p": {TimeoutSeconds: 1}},
				PeriodicInstructions: []PeriodicInstruction{{CommonInstruction: CommonInstruction{Name: "q"}}}},
			want: "instructions: ~#1 ~install; periodic instructions: +q; probes: ~p",
		},
		"order": {
			before: Plan{Instructions: []Instruction{once("a"), once("b")}},
			after:  Plan{Instructions: []Instruction{once("b"), once("a")}},
			want:   "order",
		},
		"same name twice": {
			before: Plan{Instructions: []Instruction{once("a"), once("a", "1")}},
			after:  Plan{Instructions: []Instruction{once("a"), once("a", "2")}},
			want:   "instructions: ~a#1",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			changes := Diff(test.before, test.after)
			if got := changes.String(); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
			if changes.Minor() != test.minor {
				t.Errorf("minor is %t", changes.Minor())
			}
			if changes.Empty() != (test.want == "no change") {
				t.Errorf("empty is %t", changes.Empty())
			}
		})
	}
}
