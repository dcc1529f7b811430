package rollout

import "testing"

// TestUncordonBeforeNextDrain: a change that comes while a Node is uncordoned waits for that, and says what keeps the Node cordoned: a hook
// that has not answered, or an admission webhook.
func TestUncordonBeforeNextDrain(t *testing.T) {
	for _, tc := range []struct {
		name          string
		drain         Drain
		reason, wants string
	}{
		{name: "under way", reason: ReasonUncordoning, wants: "Waiting for the Node to be uncordoned after its last drain"},
		{name: "a hook", drain: Drain{Waiting: "waiting for the post-drain hooks example.com/ready to answer"}, reason: ReasonUncordoning,
			wants: "Waiting for the Node to be uncordoned after its last drain: waiting for the post-drain hooks example.com/ready to answer"},
		{name: "a webhook", drain: Drain{Error: "denied the request"}, reason: ReasonDrainFailed,
			wants: "Uncordoning the Node after its last drain failed, retrying: denied the request"},
	} {
		server, worker := member("s", "ec"), member("w", "w")
		server.Init, worker.Change = true, ChangeDrain
		worker.Drain = tc.drain
		worker.Drain.Requested, worker.Drain.Done, worker.Drain.Uncordon = "drain", "drain", "drain"
		d := Decide(Inputs{Bootstrapped: true, Machines: []Machine{server, worker},
			WorkerDrain: DrainOptions{Enabled: true, Options: "drain"}}).Decisions[1]
		if d.Reason != tc.reason || d.Message != tc.wants || d.Deliver || d.Drain != "" {
			t.Errorf("%s: got %+v", tc.name, d)
		}
	}
}
