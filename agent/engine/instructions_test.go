package engine

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drover-dev/drover/agent/engine/report"
	"github.com/drover-dev/drover/agent/host/run"
	"github.com/drover-dev/drover/plans"
	"github.com/google/go-cmp/cmp"
)

func TestTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.host.Program("hang", func(ctx context.Context, _ run.Command) (run.Result, error) {
			<-ctx.Done()
			return run.Result{ExitCode: -1, TimedOut: true, Stdout: []byte("waiting for a lock")}, nil
		})
		w.secret.deliver(plans.Plan{Instructions: []plans.Instruction{once("only", "hang", false)}}, 1)
		w.start()
		time.Sleep(2 * time.Hour)
		w.stop()
		want := "instructions[0] (only): timed out after 1h0m0s; last output:\nwaiting for a lock"
		if got := string(w.secret.status().FailedOutput[report.ErrorOutput]); got != want {
			t.Errorf("got %q", got)
		}
	})
}

func TestScript(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var mu sync.Mutex
		var scripts []string
		run := func(_ context.Context, c run.Command) (run.Result, error) {
			raw, err := w.host.ReadFile(c.Path)
			mu.Lock()
			defer mu.Unlock()
			scripts = append(scripts, string(raw))
			return run.Result{}, err
		}
		var plan plans.Plan
		for _, script := range []string{"echo a", "#!/usr/bin/python3\nprint()"} {
			sum := plans.Checksum([]byte(script))
			w.host.Program("script-"+sum+".sh", run)
			plan.Instructions = append(plan.Instructions,
				plans.Instruction{CommonInstruction: plans.CommonInstruction{Script: script, Command: "ignored"}})
		}
		w.secret.deliver(plan, 1)
		w.start()
		w.waitAMinute()
		w.stop()
		if diff := cmp.Diff([]string{"#!/bin/sh\necho a", "#!/usr/bin/python3\nprint()"}, scripts); diff != "" {
			t.Error(diff)
		}
	})
}
