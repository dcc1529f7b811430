//go:build e2e && full

package access

import (
	"testing"
	"time"

	"github.com/drover-dev/drover/e2e/relay"
	"github.com/drover-dev/drover/e2e/scenarios/suite"
)

// TestFaults takes away the rest of what the way to a cluster consists of, and makes that way a long one.
func TestFaults(t *testing.T) {
	host, u := inside.use(t)
	suite.Step(t, "an agent that was killed is back", func(t *testing.T) {
		res, err := host.Exec(t.Context(), "pkill", "-KILL", "-f", "^[^ ]*system-agent cluster( |$)")
		suite.Must(t, err)
		if res.ExitCode != 0 {
			t.Fatalf("there is no agent to kill: %s", res.Stderr)
		}
		began := time.Now()
		time.Sleep(100 * time.Millisecond)
		u.waitAnswer(t, began, longestWait)
		waitConnected(t, inside.key)
	})
	suite.Step(t, "a line that was cut for half a minute is found again", func(t *testing.T) {
		shared.Line().Cut()
		time.Sleep(30 * time.Second)
		shared.Line().Restore()
		u.waitAnswer(t, time.Now(), longestWait)
		waitConnected(t, inside.key)
	})
	suite.Step(t, "a machine whose cable was out for half a minute is found again", func(t *testing.T) {
		suite.Must(t, host.Unplug(t.Context()))
		time.Sleep(30 * time.Second)
		suite.Must(t, host.Plug(t.Context()))
		u.waitAnswer(t, time.Now(), longestWait)
		waitConnected(t, inside.key)
	})
	suite.Step(t, "over a line of 40 ms that loses 1 % of the packets everything works", func(t *testing.T) {
		shared.Line().SetQuality(relay.Quality{RoundTrip: 40 * time.Millisecond, Loss: 0.01})
		defer shared.Line().SetQuality(relay.Quality{})
		useAll(t, u, 20)
	})
	suite.Step(t, "the kubectl of the minor before does all of it, too", func(t *testing.T) {
		u.kubectl = "kubectl-1.35"
		useAll(t, u, 200)
	})
}
