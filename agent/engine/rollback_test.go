package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/drover-dev/drover/agent/engine/report"
	"github.com/drover-dev/drover/agent/host/fs"
	"github.com/drover-dev/drover/agent/host/run"
	"github.com/drover-dev/drover/agent/testenv/fake"
	"github.com/drover-dev/drover/plans"
)

// before is a machine on which a plan will change something of each kind.
func (w *world) before() {
	for path, content := range map[string]string{"/etc/a": "old a", "/etc/gone": "old gone", "/var/data/x": "old x",
		"/var/data/deep/y": "old y"} {
		if err := w.host.WriteFile(path, []byte(content), fs.Attributes{Mode: 0o644, UID: 7}); err != nil {
			w.t.Fatal(err)
		}
	}
	if err := w.host.Symlink("/etc/a", "/etc/link"); err != nil {
		w.t.Fatal(err)
	}
	if err := w.host.MkdirAll("/etc/dir", fs.Attributes{Mode: 0o700}); err != nil {
		w.t.Fatal(err)
	}
}

func changes(rollback bool, commands ...string) plans.Plan {
	plan := plans.Plan{Rollback: rollback, Files: []plans.File{
		file("/etc/a", "new a"), file("/etc/new", "new"), file("/etc/link", "no link"),
		{Path: "/etc/gone", Action: plans.ActionDelete}, {Path: "/var/data", Directory: true, Action: plans.ActionDelete},
		{Path: "/etc/dir", Directory: true, Permissions: "0755"}, {Path: "/etc/made", Directory: true},
		file("/var/data/x", "new x"), file("/etc/absent", ""), {Path: "/etc/never", Action: plans.ActionDelete},
	}}
	for i, command := range commands {
		plan.Instructions = append(plan.Instructions, once(fmt.Sprint(i), command, false))
	}
	return plan
}

// outside are the files that are not the agent's own.
func (w *world) outside() map[string]fake.File {
	files := w.host.Files()
	maps.DeleteFunc(files, func(path string, _ fake.File) bool { return strings.HasPrefix(path, "/agent/") })
	return files
}

// kept are the agent's own files that hold what was there before.
func (w *world) kept() []string {
	var kept []string
	for path := range w.host.Files() {
		if strings.HasPrefix(path, "/agent/state/backup") || strings.Contains(path, ".system-agent-") {
			kept = append(kept, path)
		}
	}
	return kept
}

func TestRollback(t *testing.T) {
	tests := map[string]struct {
		old      bool
		rollback bool
		max      int
		failing  int // how often the program fails
		state    plans.State
		back     bool
	}{
		"put back when it has failed":           {rollback: true, max: 1, failing: 9, state: plans.StateFailed, back: true},
		"put back when the last try failed":     {rollback: true, max: 3, failing: 9, state: plans.StateFailed, back: true},
		"not when a later try succeeds":         {rollback: true, max: 3, failing: 2, state: plans.StateSucceeded},
		"not when nobody asks for it":           {max: 1, failing: 9, state: plans.StateFailed},
		"not when it succeeds":                  {rollback: true, max: 1, state: plans.StateSucceeded},
		"without plan-state":                    {old: true, rollback: true, max: 1, failing: 9, back: true},
		"without plan-state, and it is cured":   {old: true, rollback: true, max: 5, failing: 2},
		"without plan-state, nobody asks":       {old: true, max: 1, failing: 9},
		"without plan-state, tried three times": {old: true, rollback: true, max: 3, failing: 9, back: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.before()
				before := w.outside()
				runs := 0
				w.host.Program("check", func(context.Context, run.Command) (run.Result, error) {
					if runs++; runs <= test.failing {
						return run.Result{ExitCode: 1, Stderr: []byte("no")}, nil
					}
					return run.Result{}, nil
				})
				deliver := w.secret.deliver
				if test.old {
					deliver = w.secret.deliverOld
				}
				deliver(changes(test.rollback, "ok", "check"), test.max)
				w.start()
				time.Sleep(10 * time.Minute)
				got := w.secret.status()
				if got.State != test.state {
					t.Errorf("got %+v", got)
				}
				if reported := strings.HasSuffix(string(got.FailedOutput[report.ErrorOutput]), "no; the files were restored"); reported != test.back {
					t.Errorf("it tells %q", got.FailedOutput[report.ErrorOutput])
				}
				after := w.outside()
				if test.back {
					if diff := cmp.Diff(before, after); diff != "" {
						t.Error(diff)
					}
				} else if string(after["/etc/a"].Content) != "new a" || string(after["/var/data/x"].Content) != "new x" ||
					len(after["/var/data/deep/y"].Content) > 0 {
					t.Errorf("files are %v", after)
				}
				if failed := got.FailureCount > 0 && !test.back; failed != (len(w.kept()) > 0) {
					t.Errorf("kept %v", w.kept())
				}
				history, err := w.engine.History()
				if err != nil || len(history) == 0 || history[len(history)-1].RolledBack != test.back {
					t.Errorf("the history is %+v, %v", history, err)
				}
				// The next plan ends what was kept.
				w.secret.deliver(plans.Plan{Instructions: []plans.Instruction{once("other", "ok", false)}}, 1)
				w.waitAMinute()
				w.stop()
				if kept := w.kept(); len(kept) > 0 {
					t.Errorf("kept %v", kept)
				}
			})
		})
	}
}

// TestCrashWhileRollingBack stops the world at each durable effect of a plan that fails and is rolled back.
func TestCrashWhileRollingBack(t *testing.T) {
	points := 0
	for _, after := range []bool{false, true} {
		for step, whole := 1, false; !whole; step++ {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.before()
				before := w.outside()
				w.secret.deliver(changes(true, "ok", "bad"), 1)
				whole = !w.crash(step, after)
				w.start()
				w.waitAMinute()
				w.stop()
				got := w.secret.status()
				if got.State != plans.StateFailed || got.FailureCount != 1 {
					t.Errorf("stopped at %d: got %+v", step, got)
				}
				if diff := cmp.Diff(before, w.outside()); diff != "" {
					t.Errorf("stopped at %d (after: %t): %s", step, after, diff)
				}
				if kept := w.kept(); len(kept) > 0 {
					t.Errorf("stopped at %d: kept %v", step, kept)
				}
			})
			if points++; t.Failed() || step > 300 {
				t.Fatalf("failed at effect %d (after: %t)", step, after)
			}
		}
	}
	t.Logf("%d points", points)
}

// TestRollbackOfALargeFile shows that a file is put back that is larger than what the agent takes into memory at once.
func TestRollbackOfALargeFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		large := bytes.Repeat([]byte("large"), fs.MaxReadBytes/5+1)
		attrs := fs.Attributes{Mode: 0o4750, UID: 7, GID: 8}
		if err := w.host.WriteFile("/opt/large", large, attrs); err != nil {
			t.Fatal(err)
		}
		w.secret.deliver(plans.Plan{Rollback: true, Files: []plans.File{file("/opt/large", "small")}, Instructions: instructionsThatFail()}, 1)
		w.start()
		w.waitAMinute()
		w.stop()
		got := w.host.Files()["/opt/large"]
		if !bytes.Equal(got.Content, large) || got.Attrs != attrs {
			t.Errorf("it has %d bytes and %+v: %s", len(got.Content), got.Attrs, w.secret.status().FailedOutput[report.ErrorOutput])
		}
	})
}

func instructionsThatFail() []plans.Instruction {
	return []plans.Instruction{once("fails", "bad", false)}
}

// TestFolderBehindALink brings a folder into its state to which a link leads, and puts it back.
func TestFolderBehindALink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		old := fs.Attributes{Mode: 0o755, UID: 7}
		if err := errors.Join(w.host.MkdirAll("/data/real", old), w.host.Symlink("/data/real", "/srv")); err != nil {
			t.Fatal(err)
		}
		is := func(when string, want fs.Attributes) {
			t.Helper()
			folder, err := w.host.Lstat("/data/real")
			link, linkErr := w.host.Lstat("/srv")
			if folder.Attributes != want || link.Link != "/data/real" || err != nil || linkErr != nil {
				t.Errorf("%s the folder has %+v and the link leads to %q: %v, %v", when, folder.Attributes, link.Link, err, linkErr)
			}
		}
		folder := plans.File{Path: "/srv", Directory: true, Permissions: "0700", UID: 3}
		w.secret.deliver(plans.Plan{Rollback: true, Files: []plans.File{folder}, Instructions: instructionsThatFail()}, 1)
		w.start()
		w.waitAMinute()
		is("after a failure", old)
		w.secret.deliver(plans.Plan{Files: []plans.File{folder}}, 1)
		w.waitAMinute()
		w.stop()
		is("after a success", fs.Attributes{Mode: 0o700, UID: 3})
	})
}
