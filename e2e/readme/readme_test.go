package readme

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// runners are the files of the scenarios that run the commands below a heading, with the name by which they refer to it.
var runners = map[string][2]string{
	OneMachine:    {"scenarios/agent/package_hub_test.go", "readme.OneMachine"},
	Helm:          {"scenarios/chart/release_test.go", "readme.Helm"},
	Clusterctl:    {"scenarios/chart/repository_test.go", "readme.Clusterctl"},
	CreateCluster: {"scenarios/chart/management_test.go", "readme.CreateCluster"},
}

// notRun are the other headings with code blocks.
var notRun = map[string]string{
	"Drover":          "a drawing",
	"Try it":          "each build server runs make test, and the lab of all scenarios is the one of make demo",
	"From a checkout": "what bin/lab does, with the machine's own paths",
	"Use the cluster": "TestRoad does so with the names of its own cluster",
}

// TestCommandsAreRun: whoever adds commands to the README has to say what runs them.
func TestCommandsAreRun(t *testing.T) {
	content, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	found := blocks(string(content))
	for heading := range found {
		_, run := runners[heading]
		if _, other := notRun[heading]; run == other {
			t.Errorf("nothing runs the commands below %q", heading)
		}
	}
	for heading, runner := range runners {
		if len(found[heading]) != 1 {
			t.Errorf("below %q there are %d code blocks, and a scenario runs the first", heading, len(found[heading]))
		}
		source, err := os.ReadFile("../" + runner[0])
		if err != nil || !strings.Contains(string(source), runner[1]+",") {
			t.Errorf("e2e/%s does not run %s (%v)", runner[0], runner[1], err)
		}
	}
}

func TestScript(t *testing.T) {
	dir := t.TempDir()
	text := "# A\n```\none\n```\n## B\ntext\n\n```sh\ntwo hub.example.com\n# no heading\n```\n```\nthree\n```\n# C\n"
	if err := os.WriteFile(dir+"/README.md", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := Script(dir, "B", "hub.example.com", "192.0.2.1")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff("two 192.0.2.1\n# no heading\n", got); diff != "" {
		t.Error(diff)
	}
	for want, args := range map[string][]string{
		`no code block below the heading "C"`:               {"C"},
		`does not have "four" in the commands below "B"`:    {"B", "four", "five"},
		`README.md has no code block below the heading "D"`: {"D"},
		`does not have "three" in the commands below "B"`:   {"B", "three", "x"},
		`does not have "one" in the commands below "B"`:     {"B", "two", "2", "one", "1"},
	} {
		if _, err := Script(dir, args[0], args[1:]...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: got %v, want %s", args, err, want)
		}
	}
}
