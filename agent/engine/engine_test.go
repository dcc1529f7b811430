package engine

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drover-dev/drover/agent/engine/report"
	"github.com/drover-dev/drover/agent/host/fs"
	"github.com/drover-dev/drover/agent/host/run"
	"github.com/drover-dev/drover/agent/testenv/fake"
	"github.com/drover-dev/drover/plans"
	"github.com/google/go-cmp/cmp"
)

func TestPlanSucceeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		plan := plans.Plan{
			Files: []plans.File{file("/etc/a", "A"), {Path: "/etc/d", Directory: true}, {Path: "/etc/old", Action: plans.ActionDelete}},
			Instructions: []plans.Instruction{
				{CommonInstruction: plans.CommonInstruction{Name: "install", Image: "repo/image:1", Env: []string{"PATH=/sbin", "X=1"}},
					SaveOutput: true},
				once("second", "ok", false),
			},
		}
		w.host.Program("run.sh", func(_ context.Context, c run.Command) (run.Result, error) {
			if image, _ := w.host.ReadFile(c.Dir + "/.image"); string(image) != "repo/image:1" {
				t.Errorf("image is %q", image)
			}
			if state := w.secret.status().State; state != plans.StateInProgress {
				t.Errorf("the plan runs in state %s", state)
			}
			return run.Result{Stdout: []byte("installed"), Stderr: []byte("noise")}, nil
		})
		if err := w.host.WriteFile("/etc/old", nil, fs.WithMode(0o600)); err != nil {
			t.Fatal(err)
		}
		checksum := w.secret.deliver(plan, 3)
		w.start()
		w.waitAMinute()

		want := plans.Status{
			AppliedChecksum: checksum, SuccessCount: 1, AppliedOutput: map[string][]byte{"install": []byte("installed")},
			State: plans.StateSucceeded, Revision: 1,
		}
		got := w.secret.status()
		if since := time.Since(got.LastApplyTime); since < 0 || since > 2*time.Minute {
			t.Errorf("applied %s ago", since)
		}
		got.LastApplyTime = time.Time{}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		files := w.host.Files()
		if diff := cmp.Diff(fake.File{Content: []byte("A"), Attrs: fs.Attributes{Mode: 0o640, UID: 1}}, files["/etc/a"]); diff != "" {
			t.Error(diff)
		}
		if _, there := files["/etc/old"]; there {
			t.Error("/etc/old is still there")
		}
		install := w.host.Runs()[0]
		wantEnv := []string{"PATH=/bin", "AGENT=yes", "PATH=/sbin", "X=1", "CATTLE_AGENT_EXECUTION_PWD=" + install.Dir,
			"CATTLE_AGENT_ATTEMPT_NUMBER=1", "PATH=/sbin:" + install.Dir}
		if diff := cmp.Diff(wantEnv, install.Env); diff != "" {
			t.Error(diff)
		}
		if !strings.HasPrefix(install.Dir, "/agent/work/") || !strings.HasSuffix(install.Dir, checksum+"_0") ||
			install.Path != install.Dir+"/run.sh" {
			t.Errorf("ran %s in %s", install.Path, install.Dir)
		}
		for path := range files {
			if strings.HasPrefix(path, "/agent/work/") {
				t.Errorf("%s is left", path)
			}
		}
		if diff := cmp.Diff([]string{"in-progress/0/0", "succeeded/0/1"}, w.secret.history()); diff != "" {
			t.Error(diff)
		}

		gets, writes := w.secret.counts()
		time.Sleep(24 * time.Hour)
		if g, wr := w.secret.counts(); g != gets || wr != writes {
			t.Errorf("at rest there were %d reads and %d writes", g-gets, wr-writes)
		}
		w.stop()

		// Neither a restart nor a new start of the hub runs it again.
		w.start()
		w.waitAMinute()
		w.stop()
		w.checkRan("run.sh@1", "ok second@1")
	})
}

// TestFailureStaysVisible shows that B1 and B4 cannot happen: a failure of any kind is told to the hub and stays there.
func TestFailureStaysVisible(t *testing.T) {
	tests := map[string]struct {
		plan     plans.Plan
		max      int
		failures int
		ran      []string
		output   map[string]string
	}{
		"instruction": {
			plan: plans.Plan{Instructions: []plans.Instruction{once("first", "ok", true), once("second", "bad", true), once("third", "ok", true)}},
			max:  2, failures: 2,
			ran: []string{"ok first@1", "bad second@1", "ok first@2", "bad second@2"},
			output: map[string]string{"first": "ok 2", "second": "bad 2",
				report.ErrorOutput: "instructions[1] (second): exit code 3; last output:\nfrom bad"},
		},
		"no limit": {
			plan: plans.Plan{Instructions: []plans.Instruction{once("only", "bad", false)}}, max: -1, failures: 3,
			ran:    []string{"bad only@1", "bad only@2", "bad only@3"},
			output: map[string]string{report.ErrorOutput: "instructions[0] (only): exit code 3; last output:\nfrom bad"},
		},
		"program not found": {
			plan: plans.Plan{Instructions: []plans.Instruction{once("only", "absent", false)}}, max: 1, failures: 1,
			output: map[string]string{report.ErrorOutput: "instructions[0] (only): " +
				"absent is not a program of this machine: executable file not found in $PATH"},
		},
		"image": {
			plan: plans.Plan{Instructions: []plans.Instruction{{CommonInstruction: plans.CommonInstruction{Image: "missing:1"}}}},
			max:  1, failures: 1,
			output: map[string]string{report.ErrorOutput: "instructions[0]: staging image missing:1: no such image"},
		},
		"file": {
			plan: plans.Plan{Files: []plans.File{file("/etc/a/b", ""), file("/etc/a", "")}}, max: 1, failures: 1,
			output: map[string]string{report.ErrorOutput: "files[1]: /etc/a: write /etc/a: is a directory"},
		},
		"path of another system": {
			plan: plans.Plan{Files: []plans.File{file(`C:\etc\a`, "")}}, max: 1, failures: 1,
			output: map[string]string{report.ErrorOutput: `files[0]: C:\etc\a: the path is not absolute on this machine`},
		},
		"plan that cannot be carried out is tried once": {
			plan: plans.Plan{Files: []plans.File{{Path: "/a", Permissions: "0o644"}}, Instructions: []plans.Instruction{once("only", "ok", false)}},
			max:  5, failures: 1,
			output: map[string]string{report.ErrorOutput: `files[0].permissions: must be octal digits, got "0o644": write 0644`},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				checksum := w.secret.deliver(test.plan, test.max)
				w.start()
				for range 60 {
					w.waitAMinute()
				}
				w.stop()
				w.start() // a restart forgets nothing and tries nothing
				w.waitAMinute()
				w.stop()
				got := w.secret.status()
				if got.State != plans.StateFailed || got.FailedChecksum != checksum || got.FailureCount != test.failures || got.AppliedChecksum != "" {
					t.Errorf("got state %s, failed %q (%d), applied %q", got.State, got.FailedChecksum, got.FailureCount, got.AppliedChecksum)
				}
				output := map[string]string{}
				for name, text := range got.FailedOutput {
					output[name] = string(text)
				}
				if diff := cmp.Diff(test.output, output); diff != "" {
					t.Error(diff)
				}
				w.checkRan(test.ran...)
			})
		})
	}
}

// TestFailureIsNoVerdictWhileTheAgentStillTries shows that B2 cannot happen: one failure that passes is not the end of a plan.
func TestFailureIsNoVerdictWhileTheAgentStillTries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		checksum := w.secret.deliver(plans.Plan{Instructions: []plans.Instruction{once("only", "bad", false)}}, 3)
		w.start()
		time.Sleep(2 * time.Second)
		got := w.secret.status()
		if got.State != plans.StateInProgress || got.FailureCount != 1 || got.FailedChecksum != "" ||
			got.FailedOutput[report.ErrorOutput] == nil {
			t.Errorf("got %+v", got)
		}
		w.program("bad", 0)
		w.waitAMinute()
		w.stop()
		got = w.secret.status()
		if got.State != plans.StateSucceeded || got.FailureCount != 0 || got.AppliedChecksum != checksum || got.FailedOutput != nil {
			t.Errorf("got %+v", got)
		}
		w.checkRan("bad only@1", "bad only@2")
	})
}

// TestDeliveredAgainAfterAFailure shows that B3 cannot happen: each try has a number of its own.
func TestDeliveredAgainAfterAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		plan := plans.Plan{Instructions: []plans.Instruction{once("only", "bad", false)}}
		w.secret.deliver(plan, 1)
		w.start()
		w.waitAMinute()
		w.secret.deliver(plan, 1)
		w.waitAMinute()
		w.stop()
		got := w.secret.status()
		if got.State != plans.StateFailed || got.FailureCount != 2 || got.Revision != 2 {
			t.Errorf("got %+v", got)
		}
		w.checkRan("bad only@1", "bad only@2")
	})
}

func TestAnotherPlanAfterAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.secret.deliver(plans.Plan{Instructions: []plans.Instruction{once("only", "bad", false)}}, 1)
		w.start()
		w.waitAMinute()
		w.host.Program("look", func(_ context.Context, c run.Command) (run.Result, error) {
			if got := w.secret.status(); got.FailureCount != 0 || got.FailedChecksum != "" || got.FailedOutput != nil {
				t.Errorf("the former failure is still shown: %+v", got)
			}
			return run.Result{}, nil
		})
		w.secret.deliver(plans.Plan{Instructions: []plans.Instruction{once("other", "look", false)}}, 1)
		w.waitAMinute()
		w.stop()
		w.checkRan("bad only@1", "look other@1")
	})
}

func TestChecksumProtocol(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		plan := plans.Plan{Instructions: []plans.Instruction{once("only", "bad", true)}}
		checksum := w.secret.deliverOld(plan, 3)
		w.start()
		time.Sleep(20 * time.Second)
		got := w.secret.status()
		if got.State != "" || got.FailedChecksum != checksum || got.FailureCount != 1 || got.Revision != 0 {
			t.Errorf("got %+v", got)
		}
		time.Sleep(5 * time.Minute)
		got = w.secret.status()
		if got.FailureCount != 3 || len(w.ran()) != 3 {
			t.Errorf("got %d failures, ran %v", got.FailureCount, w.ran())
		}
		w.stop()
		w.start() // a restart does not give it another chance
		w.waitAMinute()
		if len(w.ran()) != 3 {
			t.Errorf("ran %v", w.ran())
		}
		// Another content does.
		plan.Instructions = append(plan.Instructions, once("more", "ok", true))
		w.program("bad", 0)
		checksum = w.secret.deliverOld(plan, 3)
		w.waitAMinute()
		got = w.secret.status()
		if got.AppliedChecksum != checksum || got.FailureCount != 0 || got.FailedChecksum != "" || got.FailedOutput != nil || got.State != "" {
			t.Errorf("got %+v", got)
		}
		w.stop()
		before := len(w.ran())
		w.start() // the journal proves it applied
		w.waitAMinute()
		if len(w.ran()) != before {
			t.Errorf("ran %v", w.ran())
		}
		w.stop()
		w.secret.uid = "uid-2" // recreated: a different machine's report, for all we know
		w.start()
		w.waitAMinute()
		w.stop()
		if len(w.ran()) != before+2 {
			t.Errorf("ran %v", w.ran())
		}
	})
}

// TestLostHub shows that B5 cannot happen: an outcome that cannot be delivered is kept, and nothing runs again because of it.
func TestLostHub(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.host.Program("cut", func(context.Context, run.Command) (run.Result, error) {
			w.secret.setDown(errors.New("connection refused"))
			return run.Result{}, nil
		})
		checksum := w.secret.deliver(plans.Plan{Instructions: []plans.Instruction{once("only", "cut", false)}}, 1)
		w.start()
		time.Sleep(3 * time.Hour)
		w.stop()
		w.start()
		time.Sleep(3 * time.Hour)
		w.secret.setDown(nil)
		time.Sleep(2 * time.Minute)
		w.stop()
		if got := w.secret.status(); got.State != plans.StateSucceeded || got.AppliedChecksum != checksum {
			t.Errorf("got %+v", got)
		}
		w.checkRan("cut only@1")
	})
}

func TestPlanReplacedWhileItRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.host.Program("slow", func(ctx context.Context, _ run.Command) (run.Result, error) {
			time.Sleep(10 * time.Minute)
			return run.Result{}, nil
		})
		w.secret.deliver(plans.Plan{Instructions: []plans.Instruction{once("old", "slow", false)}}, 1)
		w.start()
		w.waitAMinute()
		checksum := w.secret.deliver(plans.Plan{Instructions: []plans.Instruction{once("new", "ok", false)}}, 1)
		time.Sleep(time.Hour)
		w.stop()
		if got := w.secret.status(); got.State != plans.StateSucceeded || got.AppliedChecksum != checksum || got.SuccessCount != 1 {
			t.Errorf("got %+v", got)
		}
		w.checkRan("slow old@1", "ok new@1")
	})
}
