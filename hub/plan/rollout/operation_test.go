package rollout

import "testing"

// TestTaskDoesNotWaitForAnUpgrade: what restarts workers for an operation waits for servers to restart for it, and not for an upgrade of
// them, which waits for the operation.
func TestTaskDoesNotWaitForAnUpgrade(t *testing.T) {
	a, w := member("a", "ec"), member("w", "w")
	a.Init, a.Version, a.WantVersion, w.Version, w.WantVersion = true, "v1.35.0", "v1.36.0", "v1.35.0", "v1.36.0"
	w.Task, w.Change = true, ChangeRestart
	for name, tc := range map[string]struct {
		server func(*Machine)
		want   string
	}{
		"the server has its task yet to come":  {func(m *Machine) { m.Task, m.Change = true, ChangeRestart }, ReasonWaitingForTurn},
		"the server restarts":                  {func(m *Machine) { m.Task, m.Progress, m.Underway = true, ProgressApplying, ChangeRestart }, ReasonWaitingForTurn},
		"the server is not healthy after it":   {func(m *Machine) { m.ProbesPassed, m.Unhealthy = false, []string{"etcd"} }, ReasonWaitingForTurn},
		"the server is done, and is to change": {func(m *Machine) { m.Change = ChangeDrain }, ReasonDelivering},
		"the server is done":                   {func(*Machine) {}, ReasonDelivering},
	} {
		server := a
		tc.server(&server)
		out := Decide(Inputs{Bootstrapped: true, Operation: "CertificateRotation one", Machines: []Machine{server, w}})
		if d := out.Decisions[1]; d.Reason != tc.want {
			t.Errorf("%s: got %+v", name, d)
		}
		if d := out.Decisions[0]; server.Change == ChangeDrain && d.Reason != ReasonWaitingForOperation {
			t.Errorf("%s: got %+v", name, d)
		}
	}
}
