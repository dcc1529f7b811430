package engine

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"sync"
	"time"

	"github.com/drover-dev/drover/agent/host/run"
	"github.com/drover-dev/drover/agent/retry"
	"github.com/drover-dev/drover/plans"
)

const (
	// periodicRetry is the pause after a failure; it grows with the failures in a row, up to maxPeriodicRetries times.
	periodicRetry      = 30 * time.Second
	maxPeriodicRetries = 6
)

// periodic runs one instruction until ctx is done. Others neither wait for it nor are held up by its failures. last is its last outcome;
// atOnce runs it first without regard to that. tried is called after the first run, or as soon as none is needed.
func (r *runner) periodic(
	ctx context.Context, p plans.PeriodicInstruction, index int, last plans.PeriodicOutput, atOnce bool, tried func(),
) {
	tried = sync.OnceFunc(tried)
	defer tried()
	if !atOnce {
		due := dueIn(p, last, time.Now())
		if due > 0 {
			tried() // its last outcome is as good as a first one
			r.showPeriodic(p, last, time.Now().Add(due), false)
		}
		if retry.Sleep(ctx, due) != nil {
			return
		}
	}
	for r.awaitUnpaused(ctx) {
		started := time.Now().UTC()
		r.showPeriodic(p, last, time.Time{}, false)
		result, err := r.runPeriodic(ctx, p, index, last.Failures+1)
		if ctx.Err() != nil {
			return
		}
		last = periodicOutput(p, last, result, err, started)
		if last.Failures > 0 {
			r.engine.Log.Warn("Periodic instruction failed", "instruction", p.Name, "exitCode", last.ExitCode, "failures", last.Failures,
				"error", r.periodicError(p, index, result, err))
		}
		r.recordPeriodic(last)
		tried()
		pause := pauseAfter(p, last)
		r.showPeriodic(p, last, time.Now().Add(pause), true)
		if retry.Sleep(ctx, pause) != nil {
			return
		}
	}
}

func (r *runner) runPeriodic(ctx context.Context, p plans.PeriodicInstruction, index, attempt int) (run.Result, error) {
	e := r.engine
	dir := filepath.Join(e.periodicDirectory(), fmt.Sprintf("%s_%d", r.plan.Checksum, index))
	result, err := e.execute(ctx, p.CommonInstruction, dir, attempt,
		run.Command{Timeout: timeoutOf(p.CommonInstruction, e.PeriodicTimeout)})
	if !e.PreserveWorkDirectory {
		e.warn("Removing the work folder failed", e.Host.RemoveAll(dir))
	}
	return result, err
}

// periodicError is why a run has failed, without the output of its program.
func (r *runner) periodicError(p plans.PeriodicInstruction, index int, result run.Result, err error) string {
	if err == nil {
		name := displayName(p.CommonInstruction, "periodicInstructions", index)
		err = resultError(name, result, timeoutOf(p.CommonInstruction, r.engine.PeriodicTimeout))
	}
	return withoutOutput(err)
}

// showPeriodic records the state of a periodic instruction for State; a zero next means that it runs, ran that a run has just ended.
func (r *runner) showPeriodic(p plans.PeriodicInstruction, last plans.PeriodicOutput, next time.Time, ran bool) {
	succeeded, _ := plans.ParseTime(last.LastSuccessfulRunTime)
	failed, _ := plans.ParseTime(last.LastFailedRunTime)
	state := Periodic{ExitCode: last.ExitCode, Failures: last.Failures, LastSuccess: succeeded, LastFailure: failed, Running: next.IsZero()}
	if !state.Running {
		state.Next = next.UTC()
	}
	r.engine.status.setPeriodic(p.Name, state, ran)
}

func (r *runner) recordPeriodic(output plans.PeriodicOutput) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.output[output.Name] = output
	r.engine.reporter.Periodic(r.plan, maps.Clone(r.output))
}

// periodicOutput is the report of one run. A failure keeps the time of the last success.
func periodicOutput(p plans.PeriodicInstruction, last plans.PeriodicOutput, result run.Result, err error,
	started time.Time) plans.PeriodicOutput {
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

// pauseAfter is the pause after a run.
func pauseAfter(p plans.PeriodicInstruction, last plans.PeriodicOutput) time.Duration {
	if last.Failures > 0 {
		return periodicRetry * time.Duration(min(last.Failures, maxPeriodicRetries))
	}
	if p.PeriodSeconds > 0 {
		return plans.Seconds(p.PeriodSeconds)
	}
	return plans.DefaultPeriodSeconds * time.Second
}

// dueIn is after what time to run for the first time after a restart, given what was reported last.
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
