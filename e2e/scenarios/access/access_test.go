//go:build e2e

package access

import (
	"strings"
	"testing"
	"time"

	"github.com/drover-dev/drover/e2e/scenarios/suite"
)

// TestAccess does everything that kubectl can do with a cluster that nobody can connect to, and takes away what the way to it consists of.
func TestAccess(t *testing.T) { access(t, inside) }

func access(t *testing.T, c *closedCluster) {
	_, u := c.use(t)
	began := time.Now()
	useAll(t, u, 200)
	old := u
	old.env = spdy
	suite.Step(t, "exec -it works over SPDY, too", func(t *testing.T) { talk(t, old) })
	suite.Step(t, "port-forward works over SPDY, too", func(t *testing.T) { forward(t, old) })
	suite.Step(t, "the audit log tells who did that", func(t *testing.T) { checkAudit(t, began) })
	suite.Step(t, "a line that died without a word is found out, and another taken", func(t *testing.T) {
		watchAlready(t, u)
		if n := shared.Line().Freeze(); n < 2 {
			t.Fatalf("only %d connections were frozen: the agents' and the watch must be among them", n)
		}
		u.waitAnswer(t, time.Now(), 2*time.Minute)
		waitConnected(t, c.key)
	})
	var beside user
	suite.Step(t, "the cluster's own API server takes a user's token, where it is reached",
		func(t *testing.T) { beside = c.besideUser(t) })
	suite.Step(t, "while the hub is dead nothing hangs, and the cluster's own API server does without it", func(t *testing.T) {
		w := watchAlready(t, u)
		suite.Must(t, shared.KillHub(t.Context()))
		select {
		case <-w.done:
		case <-time.After(time.Minute):
			t.Error("a watch through the killed hub does not end")
		}
		if out, err := u.try(t.Context(), 10*time.Second, "get", "nodes"); err == nil {
			t.Errorf("without a hub kubectl says:\n%s", out)
		}
		if out := beside.run(t, "exec", "toolbox", "--", "cat", "/proc/self/comm"); !strings.Contains(out, "cat") {
			t.Errorf("exec past the hub says %q", out)
		}
	})
	suite.Step(t, "when the hub is back, so is the cluster", func(t *testing.T) {
		suite.Must(t, shared.StartHub(t.Context()))
		u.waitAnswer(t, time.Now(), longestWait)
		waitConnected(t, c.key)
	})
}

// longestWait is the longest pause of an agent between two attempts, and some time for what comes after it.
const longestWait = 6 * time.Minute

// watchAlready starts a watch and returns when it shows what happens.
func watchAlready(t *testing.T, u user) *running {
	t.Helper()
	const name = "already"
	u.run(t, "delete", "configmap", name, "--ignore-not-found")
	w := u.start(t, "get", "configmaps", "-w", "-o", "name")
	w.waitSaid(t, "what is there", saying("configmap/kube-root-ca.crt"))
	u.run(t, "create", "configmap", name)
	w.waitSaid(t, "what was made", saying("configmap/"+name))
	return w
}

// spdy makes kubectl speak as it did before it knew WebSocket, and as it still does where that is refused.
var spdy = []string{"KUBECTL_REMOTE_COMMAND_WEBSOCKETS=false", "KUBECTL_PORT_FORWARD_WEBSOCKETS=false"}

// waitAnswer waits until the cluster answers kubectl, and tells how long after it has begun that was.
func (u user) waitAnswer(t *testing.T, began time.Time, limit time.Duration) {
	t.Helper()
	for {
		_, err := u.try(t.Context(), 5*time.Second, "get", "--raw", "/readyz", "--request-timeout=3s")
		took := time.Since(began)
		if err == nil {
			t.Logf("the cluster answers after %.1f s", took.Seconds())
			return
		}
		if took > limit {
			t.Fatalf("the cluster does not answer after %s: %v", limit, err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}
