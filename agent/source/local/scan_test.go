package local

import (
	"os"
	"slices"
	"testing"
)

func TestSkipFiles(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	f.write("a.plan", plan("1"))
	f.write("b.plan", plan("2"))
	f.write("sub/a.plan", plan("3"))
	f.write("elsewhere/a.plan.skip", "")
	f.start()
	f.expect("b " + plan("2"))
	f.remove("elsewhere/a.plan.skip")
	f.expect("a "+plan("1"), "sub/a "+plan("3"))
	f.applied("b", plan("2"))
	f.write("b.plan.skip", "")
	f.expect("b -")
	if states := f.states(); !slices.Contains(states, "b") {
		t.Errorf("the state of a plan that is skipped is gone: %v", states)
	}
	// It was applied, and is not applied again.
	f.remove("b.plan.skip")
	f.write("c.plan", plan("4"))
	f.expect("c " + plan("4"))
}

func TestUnreadableFolderTakesNothingAway(t *testing.T) {
	f := newFolder(t)
	f.write("a.plan", plan("1"))
	f.start()
	f.expect("a " + plan("1"))
	f.stop()
	d := New(f.options())
	noWatch := func(string) error { return nil }
	if d.reload(noWatch); d.problem != "" || d.plans["a"] == nil {
		t.Fatalf("got %v, %s", d.plans, d.problem)
	}
	if err := os.Rename(f.path, f.path+"-gone"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(f.path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if d.reload(noWatch); d.problem == "" || d.plans["a"] == nil || !slices.Contains(f.states(), "a") {
		t.Errorf("got %v, states %v", d.plans, f.states())
	}
}
