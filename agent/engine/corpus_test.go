package engine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/drover-dev/drover/agent/host/run"
	"github.com/drover-dev/drover/agent/probe"
	"github.com/drover-dev/drover/plans"
)

// matrixCase is one of the corpus of the crash matrix.
type matrixCase struct {
	name string
	// setup prepares the machine, script is the hub's side: it returns when all has come to its end. It must not count on time, which crashes
	// take, but only on what it sees.
	setup  func(p *play)
	script func(p *play)
	// relax takes out of an end what may differ.
	relax func(*ending)
	// twice stops the world a second time soon after each stop.
	twice bool
}

func files(n int) []plans.File {
	var all []plans.File
	for i := range n {
		all = append(all, plans.File{Path: fmt.Sprintf("/etc/many/%d/file", i), Content: "QQ==", UID: i,
			Permissions: []string{"0600", "4755", "0444"}[i%3]})
	}
	return all
}

func instructions(names ...string) []plans.Instruction {
	var all []plans.Instruction
	for _, name := range names {
		all = append(all, once(name, "ok", true))
	}
	return all
}

// state is a case in which one plan is delivered and ends so.
func state(name string, plan plans.Plan, maxFailures int, want plans.State, setup func(*play)) matrixCase {
	return matrixCase{name: name, setup: setup, script: func(p *play) { p.deliver(plan, maxFailures, want) }}
}

// upTo adds a program that fails until the attempt has this number.
func upTo(success string) func(*play) {
	return func(p *play) {
		p.host.Program("flaky", func(_ context.Context, c run.Command) (run.Result, error) {
			attempt := env(c, envAttempt)
			if attempt < success {
				return run.Result{ExitCode: 7, Stdout: []byte("failed " + attempt)}, nil
			}
			return run.Result{Stdout: []byte("done " + attempt)}, nil
		})
	}
}

// during adds a program that takes a minute; do is called once, when it runs for the first time.
func during(do func(p *play)) func(*play) {
	return func(p *play) {
		do := sync.OnceFunc(func() { do(p) })
		p.host.Program("slow", func(ctx context.Context, c run.Command) (run.Result, error) {
			do()
			select {
			case <-ctx.Done():
				return run.Result{ExitCode: -1}, ctx.Err()
			case <-time.After(time.Minute):
				return run.Result{Stdout: []byte("slow " + env(c, envAttempt))}, nil
			}
		})
	}
}

func corpus() []matrixCase {
	script := "echo hello"
	sum := sha256.Sum256([]byte(script))
	before := func(p *play) { p.before() }
	long := plans.Instruction{CommonInstruction: plans.CommonInstruction{Name: "long", Command: "slow", TimeoutSeconds: 10}}
	all := []matrixCase{
		state("files only", plans.Plan{Files: []plans.File{file("/etc/a", "A"), file("/etc/b", "B")}}, 1, plans.StateSucceeded, nil),
		state("many files", plans.Plan{Files: files(25)}, 1, plans.StateSucceeded, nil),
		state("files of every kind", changes(false), 1, plans.StateSucceeded, before),
		state("files and instructions", changes(false, "ok", "ok"), 1, plans.StateSucceeded, before),
		state("a folder in which the plan writes", plans.Plan{Files: []plans.File{
			{Path: "/srv", Directory: true, Permissions: "0700"}, file("/srv/x", "x"),
			{Path: "/srv", Directory: true, Permissions: "1777", UID: 3}}},
			1, plans.StateSucceeded, nil),
		state("one instruction", plans.Plan{Instructions: instructions("one")}, 1, plans.StateSucceeded, nil),
		state("many instructions", plans.Plan{Instructions: instructions("1", "2", "3", "4", "5", "6")}, 1, plans.StateSucceeded, nil),
		state("images", plans.Plan{Instructions: []plans.Instruction{
			{CommonInstruction: plans.CommonInstruction{Name: "a", Image: "image:1", Command: "whole"}, SaveOutput: true}, once("b", "ok", true),
			{CommonInstruction: plans.CommonInstruction{Name: "c", Image: "image:2"}}, once("d", "ok", true),
			{CommonInstruction: plans.CommonInstruction{Name: "e", Image: "image:3", Script: script}}}}, 1, plans.StateSucceeded, func(p *play) {
			// A program of an image that a power cut has left by half fails.
			for name, image := range map[string]string{"whole": "image:1", "run.sh": "image:2",
				"script-" + hex.EncodeToString(sum[:]) + ".sh": "image:3"} {
				p.host.Program(name, func(_ context.Context, c run.Command) (run.Result, error) {
					if !(images{p.host}).whole(c.Dir, image) {
						return run.Result{ExitCode: 9}, nil
					}
					return run.Result{Stdout: []byte("whole")}, nil
				})
			}
		}),
		state("an image that is missing", plans.Plan{Files: files(2), Instructions: []plans.Instruction{once("a", "ok", true),
			{CommonInstruction: plans.CommonInstruction{Name: "b", Image: "missing:1", Command: "ok"}}}}, 2, plans.StateFailed, nil),
		state("a script", plans.Plan{Instructions: []plans.Instruction{
			{CommonInstruction: plans.CommonInstruction{Name: "s", Script: script}, SaveOutput: true},
			once("b", "ok", true)}}, 1, plans.StateSucceeded,
			func(p *play) { p.program("script-"+hex.EncodeToString(sum[:])+".sh", 0) }),
		state("the first instruction fails", plans.Plan{Files: files(2),
			Instructions: []plans.Instruction{once("a", "bad", true), once("b", "ok", true)}},
			1, plans.StateFailed, nil),
		state("the last instruction fails", plans.Plan{Files: files(2),
			Instructions: []plans.Instruction{once("a", "ok", true), once("b", "bad", true)}},
			1, plans.StateFailed, nil),
		state("it fails as often as it may", plans.Plan{Instructions: []plans.Instruction{once("a", "ok", true), once("b", "bad", true)}},
			3, plans.StateFailed, nil),
		state("a try that succeeds", plans.Plan{Files: files(1), Instructions: []plans.Instruction{once("a", "ok", true),
			once("b", "flaky", true)}},
			3, plans.StateSucceeded, upTo("3")),
		state("a file that cannot be", plans.Plan{Files: []plans.File{file("/etc/a/b", "B")}, Instructions: instructions("one")}, 2,
			plans.StateFailed, before),
		state("a plan that is none", plans.Plan{Files: []plans.File{{Path: "relative"}}}, 3, plans.StateFailed, nil),
		state("put back", changes(true, "ok", "bad"), 2, plans.StateFailed, before),
		state("put back in the middle of the files", plans.Plan{Rollback: true, Files: append(changes(true).Files, file("/etc/a/below", "no"))},
			1, plans.StateFailed, before),
		state("nothing to put back", changes(true, "ok"), 1, plans.StateSucceeded, before),
		state("it takes too long", plans.Plan{Instructions: []plans.Instruction{once("a", "ok", true), long}}, 1, plans.StateFailed,
			during(func(*play) {})),
		{name: "with interlock and history", script: func(p *play) { p.deliver(changes(false, "ok"), 1, plans.StateSucceeded) },
			setup: func(p *play) {
				p.before()
				p.options.InterlockDirectory, p.options.AppliedPlanDirectory = "/agent/lock", "/applied"
			}},
	}
	all = append(all, protocols()...)
	all = append(all, courses()...)
	for i := range all {
		all[i].twice = all[i].twice || i%3 == 0
	}
	return all
}

// protocols are cases without plan-state.
func protocols() []matrixCase {
	plan := plans.Plan{Files: files(2), Instructions: []plans.Instruction{once("a", "ok", true), once("b", "flaky", true)}}
	return []matrixCase{
		{name: "checksum: success", twice: true, setup: upTo("1"), script: func(p *play) {
			checksum := p.secret.deliverOld(plan, 3)
			p.until("success", func(s plans.Status) bool { return s.AppliedChecksum == checksum })
		}},
		{name: "checksum: success in the third try", setup: upTo("3"), script: func(p *play) {
			checksum := p.secret.deliverOld(plan, -1)
			p.until("success", func(s plans.Status) bool { return s.AppliedChecksum == checksum })
		}},
		{name: "checksum: failed as often as it may", setup: upTo("9"), script: func(p *play) {
			p.secret.deliverOld(plan, 2)
			p.until("failures", func(s plans.Status) bool { return s.FailureCount == 2 })
		}},
		{name: "checksum: one plan after the other", setup: upTo("1"), script: func(p *play) {
			for _, plan := range []plans.Plan{plan, changes(false, "ok"), {Instructions: instructions("last")}} {
				checksum := p.secret.deliverOld(plan, 3)
				p.until("success", func(s plans.Status) bool { return s.AppliedChecksum == checksum })
			}
		}},
		{name: "checksum: a Secret of another UID", script: func(p *play) {
			plan := plans.Plan{Instructions: instructions("one")}
			checksum := p.secret.deliverOld(plan, 3)
			p.until("success", func(s plans.Status) bool { return s.AppliedChecksum == checksum })
			p.secret.hub(func(plans.SecretData) { p.secret.uid = "uid-2" })
			p.until("another", func(s plans.Status) bool { return s.SuccessCount == 2 })
		}},
	}
}

// courses are cases in which more than one thing happens.
func courses() []matrixCase {
	three := plans.Plan{Files: files(1), Instructions: []plans.Instruction{once("a", "ok", true), once("b", "slow", true),
		once("c", "ok", true)}}
	pause := func(on bool) func(*play) {
		return func(p *play) { p.secret.hub(func(plans.SecretData) { p.secret.interrupt.Paused = on }) }
	}
	return []matrixCase{
		{name: "probes and periodic instructions", script: func(p *play) {
			p.deliver(plans.Plan{
				Instructions:         instructions("one"),
				PeriodicInstructions: []plans.PeriodicInstruction{{CommonInstruction: plans.CommonInstruction{Name: "p", Command: "periodic"}}},
				Probes:               map[string]plans.Probe{"well": {HTTPGet: plans.HTTPGetAction{URL: "http://127.0.0.1/healthz"}}},
			}, 1, plans.StateSucceeded)
			p.until("health", func(s plans.Status) bool { return s.ProbeStatuses["well"].Healthy && len(s.PeriodicOutput) == 1 })
		}, setup: func(p *play) {
			p.program("periodic", 0)
			p.check = func(context.Context, plans.Probe) (probe.Certificates, error) { return probe.Certificates{}, nil }
		}},
		{name: "paused and resumed", twice: true, setup: during(pause(true)), script: func(p *play) {
			p.secret.deliver(three, 1)
			p.state(plans.StatePaused)
			pause(false)(p)
			p.state(plans.StateSucceeded)
		}},
		{name: "canceled", setup: during(func(p *play) { p.secret.hub(func(plans.SecretData) { p.secret.interrupt.Canceled = true }) }),
			script: func(p *play) { p.deliver(three, 1, plans.StateCanceled) }},
		{name: "delivered again after a success", script: func(p *play) {
			for range 2 {
				p.deliver(plans.Plan{Files: files(1), Instructions: instructions("one")}, 1, plans.StateSucceeded)
			}
		}},
		{name: "delivered again after a failure", setup: upTo("2"), script: func(p *play) {
			plan := plans.Plan{Instructions: []plans.Instruction{once("a", "ok", true), once("b", "flaky", true)}}
			p.deliver(plan, 1, plans.StateFailed)
			p.deliver(plan, 1, plans.StateSucceeded)
		}},
		{name: "one plan after the other", script: func(p *play) {
			p.deliver(plans.Plan{Files: files(2), Instructions: instructions("one", "two")}, 1, plans.StateSucceeded)
			p.deliver(plans.Plan{Files: files(3), Instructions: instructions("three")}, 1, plans.StateSucceeded)
			p.deliver(plans.Plan{}, 1, plans.StateSucceeded)
		}},
		{name: "a new plan while one is applied", relax: func(end *ending) {
			// After a crash the former plan does not go on: the hub wants it no more.
			end.Runs, end.Ends = end.Runs[len(end.Runs)-1:], end.Ends[len(end.Ends)-1:]
		}, setup: during(func(p *play) {
			p.secret.deliver(plans.Plan{Files: files(3), Instructions: instructions("new")}, 1)
		}), script: func(p *play) {
			p.secret.deliver(three, 1)
			p.until("the new plan", func(s plans.Status) bool { return len(s.AppliedOutput["new"]) > 0 && s.State == plans.StateSucceeded })
		}},
		{name: "the outcome cannot be reported", setup: during(func(p *play) { p.secret.setDown(errors.New("no route to host")) }),
			script: func(p *play) {
				p.secret.deliver(three, 1)
				time.Sleep(20 * time.Minute)
				p.secret.setDown(nil)
				p.state(plans.StateSucceeded)
			}},
		{name: "the hub is unreachable from the beginning", script: func(p *play) {
			p.secret.setDown(errors.New("no route to host"))
			p.secret.deliver(plans.Plan{Files: files(1), Instructions: instructions("one", "two")}, 1)
			time.Sleep(20 * time.Minute)
			p.secret.setDown(nil)
			p.state(plans.StateSucceeded)
		}},
	}
}
