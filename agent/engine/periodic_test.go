package engine

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/drover-dev/drover/agent/host/run"
	"github.com/drover-dev/drover/plans"
)

// TestPeriodicFailureIsExplained: what is reported of a periodic instruction is an exit code, which is -1 for a program that is not there.
// The log says why it has failed, without its output.
func TestPeriodicFailureIsExplained(t *testing.T) {
	noImage, slow := periodic("image", "ok", 600), periodic("slow", "slow", 600)
	noImage.Image, slow.TimeoutSeconds = "missing", 5
	for want, instruction := range map[string]plans.PeriodicInstruction{
		"staging image missing: no such image":               noImage,
		"none is not a program of this machine":              periodic("none", "none", 600),
		"periodicInstructions[0] (bad): exit code 3":         periodic("bad", "bad", 600),
		"periodicInstructions[0] (slow): timed out after 5s": slow,
	} {
		t.Run(instruction.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				var log bytes.Buffer
				w.options.Log = slog.New(slog.NewTextHandler(&log, nil))
				w.host.Program("slow", func(context.Context, run.Command) (run.Result, error) {
					return run.Result{ExitCode: -1, TimedOut: true}, nil
				})
				w.secret.deliver(plans.Plan{PeriodicInstructions: []plans.PeriodicInstruction{instruction}}, 1)
				w.start()
				w.waitAMinute()
				w.stop()
				if got := log.String(); !strings.Contains(got, want) || strings.Contains(got, "from bad") {
					t.Errorf("want %q in the log, got %s", want, got)
				}
			})
		})
	}
}
