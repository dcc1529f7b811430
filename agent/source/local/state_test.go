package local

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/drover-dev/drover/plans"
)

func noWatch(string) error { return nil }

// TestDirectoryThatIsNotMountedYet has an agent that starts before the file system of its plans is mounted: nothing is removed, unless the
// directory stays empty.
func TestDirectoryThatIsNotMountedYet(t *testing.T) {
	t.Parallel()
	for name, mounted := range map[string]bool{"mounted later": true, "never mounted": false} {
		t.Run(name, func(t *testing.T) {
			f := newFolder(t)
			f.write("a.plan", plan("1"))
			f.start()
			f.expect("a " + plan("1"))
			f.applied("a", plan("1"))
			f.stop()
			disk := f.path + "-disk"
			if err := os.Rename(f.path, disk); err != nil {
				t.Fatal(err)
			}
			now := time.Now()
			d := New(f.options())
			d.now = func() time.Time { return now }
			d.reload(noWatch)
			now = now.Add(emptyGrace - time.Second)
			d.reload(noWatch)
			want := []string{"a"}
			if diff := cmp.Diff(want, f.states()); diff != "" {
				t.Error(diff)
			}
			if mounted {
				f.remove("")
				if err := os.Rename(disk, f.path); err != nil {
					t.Fatal(err)
				}
			} else {
				want = nil
			}
			now = now.Add(time.Second)
			d.reload(noWatch)
			if got := f.states(); !slices.Equal(got, want) || (d.plans["a"] != nil) != mounted {
				t.Errorf("states are %v, plans are %v", got, d.plans)
			}
		})
	}
}

// TestProgramsOfPlansThatAreGone has plans that were removed or skipped while the agent did not run, or before their engines have started.
// What an earlier process has left running for them is stopped once, before state and work are removed.
func TestProgramsOfPlansThatAreGone(t *testing.T) {
	f := newFolder(t)
	options := f.options()
	options.WorkDirectory = filepath.Join(filepath.Dir(f.path), "work/local")
	var stopped []string
	options.StopProgram = func(name, dir string) error {
		if _, err := os.Stat(dir); err != nil || filepath.Base(dir) != name {
			t.Errorf("the state of %s in %s: %v", name, dir, err)
		}
		stopped = append(stopped, name)
		return fmt.Errorf("%s still runs", name)
	}
	for _, name := range []string{"gone", "queued", "skipped", "stays", "waits"} {
		for _, dir := range []string{options.StateDirectory, options.WorkDirectory} {
			if err := os.MkdirAll(filepath.Join(dir, name), 0o700); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, name := range []string{"queued", "skipped", "stays", "waits"} {
		f.write(name+".plan", plan("1"))
	}
	f.write("skipped.plan.skip", "")
	d := New(options)
	expect := func(wantStopped, wantStates []string) {
		t.Helper()
		for range 2 {
			d.reload(noWatch)
		}
		slices.Sort(stopped)
		if diff := cmp.Diff(wantStopped, stopped); diff != "" {
			t.Errorf("stopped: %s", diff)
		}
		if diff := cmp.Diff(wantStates, f.states()); diff != "" {
			t.Errorf("states: %s", diff)
		}
		work, err := options.Host.ReadDir(options.WorkDirectory)
		if diff := cmp.Diff(wantStates, work); diff != "" || err != nil {
			t.Errorf("work: %s, %v", diff, err)
		}
	}
	expect([]string{"gone", "skipped"}, []string{"queued", "skipped", "stays", "waits"})
	f.remove("queued.plan")
	f.write("waits.plan.skip", "")
	expect([]string{"gone", "queued", "skipped", "waits"}, []string{"skipped", "stays", "waits"})
}

// TestFinished says when the next plan may start.
func TestFinished(t *testing.T) {
	sum := plans.Checksum([]byte(plan("1")))
	for name, test := range map[string]struct {
		applied, failed string
		want            bool
	}{
		"new":                           {},
		"applied":                       {applied: sum, want: true},
		"failed":                        {failed: sum, want: true},
		"another was applied":           {applied: "other"},
		"failed after another":          {applied: "other", failed: sum, want: true},
		"applied, then another failed":  {applied: sum, failed: "other"},
		"applied, then failed as again": {applied: sum, failed: sum, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlan(New(Options{}), "a")
			p.raw, p.status = []byte(plan("1")), plans.Status{AppliedChecksum: test.applied, FailedChecksum: test.failed}
			if got := p.finished(); got != test.want {
				t.Errorf("got %t", got)
			}
		})
	}
}

// TestMistypedField: a field that is ignored is named.
func TestMistypedField(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	f.write("a.plan", `{"instruction":[]}`)
	f.start()
	f.logged("plan=a field=instruction")
}
