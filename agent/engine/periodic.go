package engine

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"sync"
	"time"

	"github.com/drover-dev/drover/agent/host"
	"github.com/drover-dev/drover/plans"
)

// periodicPause is the pause after a failure; it grows with the failures in a row up to six times.
const periodicPause = 30 * time.Second

// periodic runs one instruction for ever. Others neither wait for it nor are held up by its failures.
func (r *runner) periodic(ctx context.Context, p plans.PeriodicInstruction, index int, last plans.PeriodicOutput, now bool, tried func()) {
	tried = sync.OnceFunc(tried)
	defer tried()
	if !now {
		due := dueIn(p, last, time.Now())
		if due > 0 {
			tried() // its last outcome is as good as a first one
			r.standing(p, last, time.Now().Add(due), false)
		}
		if !sleep(ctx, due) {
			return
		}
	}
	for r.allowed(ctx) {
		started := time.Now().UTC()
		r.standing(p, last, time.Time{}, false)
		result, err := r.runPeriodic(ctx, p, index, last.Failures+1)
		if ctx.Err() != nil {
			return
		}
		last = outcomeOf(p, last, result, err, started)
		if last.Failures > 0 {
			r.engine.Log.Warn("Periodic instruction failed", "instruction", p.Name, "exitCode", last.ExitCode, "failures", last.Failures)
		}
		r.ranPeriodic(last)
		tried()
		pause := pauseAfter(p, last)
		r.standing(p, last, time.Now().Add(pause), true)
		if !sleep(ctx, pause) {
			return
		}
	}
}

func (r *runner) runPeriodic(ctx context.Context, p plans.PeriodicInstruction, index, attempt int) (host.Result, error) {
	e := r.engine
	dir := filepath.Join(e.WorkDirectory, "periodic"+e.suffix(), fmt.Sprintf("%s_%d", r.target.Checksum, index))
	result, err := e.execute(ctx, p.CommonInstruction, dir, attempt,
		host.Command{Timeout: timeoutOf(p.CommonInstruction, e.PeriodicTimeout)})
	if !e.PreserveWorkDirectory {
		if err := e.Host.RemoveAll(dir); err != nil {
			e.Log.Warn("The work folder cannot be removed", "error", err)
		}
	}
	return result, err
}

// standing tells people how a periodic instruction stands; without a next time it runs.
func (r *runner) standing(p plans.PeriodicInstruction, last plans.PeriodicOutput, next time.Time, ran bool) {
	succeeded, _ := plans.ParseTime(last.LastSuccessfulRunTime)
	failed, _ := plans.ParseTime(last.LastFailedRunTime)
	r.engine.board.periodic(p.Name, Periodic{ExitCode: last.ExitCode, Failures: last.Failures, LastSuccess: succeeded, LastFailure: failed,
		Next: utc(next), Running: next.IsZero()}, ran)
}

func (r *runner) ranPeriodic(output plans.PeriodicOutput) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.output[output.Name] = output
	r.engine.reporter.ran(r.target, maps.Clone(r.output))
}

// outcomeOf is the report of one run. A failure keeps the time of the last success.
func outcomeOf(p plans.PeriodicInstruction, last plans.PeriodicOutput, result host.Result, err error, started time.Time) plans.PeriodicOutput {
	output := plans.PeriodicOutput{Name: p.Name, Stdout: result.Stdout, Stderr: []byte{}, ExitCode: result.ExitCode}
	if p.SaveStderrOutput {
		output.Stderr = append(output.Stderr, result.Stderr...)
	}
	if err == nil && result.ExitCode == 0 && !result.TimedOut {
		output.LastSuccessfulRunTime = plans.FormatTime(started)
		return output
	}
	if err != nil && p.SaveStderrOutput {
		output.Stderr = append(output.Stderr, err.Error()...)
	}
	output.LastSuccessfulRunTime = last.LastSuccessfulRunTime
	output.LastFailedRunTime = plans.FormatTime(started)
	output.Failures = last.Failures + 1
	return output
}

func pauseAfter(p plans.PeriodicInstruction, last plans.PeriodicOutput) time.Duration {
	if last.Failures > 0 {
		return periodicPause * time.Duration(min(last.Failures, 6))
	}
	if p.PeriodSeconds > 0 {
		return time.Duration(p.PeriodSeconds) * time.Second
	}
	return plans.DefaultPeriodSeconds * time.Second
}

// dueIn is when to run for the first time after a restart, given what was reported last.
func dueIn(p plans.PeriodicInstruction, last plans.PeriodicOutput, now time.Time) time.Duration {
	text := last.LastSuccessfulRunTime
	if last.Failures > 0 {
		text = last.LastFailedRunTime
	}
	since, err := plans.ParseTime(text)
	if err != nil {
		return 0
	}
	return remaining(since, pauseAfter(p, last), now)
}
