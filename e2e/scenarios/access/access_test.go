//go:build e2e

package access

import (
	"testing"
	"time"

	"github.com/drover-dev/drover/e2e/scenarios/suite"
)

// TestAccess does everything that kubectl can do with a cluster that nobody can connect to, and takes away what the way to it consists of.
func TestAccess(t *testing.T) {
	_, u := inside(t)
	useAll(t, u, 200)
	old := u
	old.env = spdy
	suite.Step(t, "exec -it works over SPDY, too", func(t *testing.T) { talk(t, old) })
	suite.Step(t, "port-forward works over SPDY, too", func(t *testing.T) { forward(t, old) })
	suite.Step(t, "a line that died without a word is found out, and another taken", func(t *testing.T) {
		w := u.start(t, "get", "configmaps", "-w", "-o", "name")
		w.waitSaid(t, "the watch has begun", 15*time.Second, saying("configmap/kube-root-ca.crt"))
		if n := shared.Line().Freeze(); n < 2 {
			t.Fatalf("only %d connections were frozen: the agents' and the watch must be among them", n)
		}
		u.waitAnswer(t, time.Now(), 30*time.Second)
		waitConnected(t, insideKey)
	})
	suite.Step(t, "a hub that was killed is back, and so is the cluster", func(t *testing.T) {
		w := u.start(t, "get", "configmaps", "-w", "-o", "name")
		w.waitSaid(t, "the watch has begun", 15*time.Second, saying("configmap/kube-root-ca.crt"))
		suite.Must(t, shared.KillHub(t.Context()))
		select {
		case <-w.done:
		case <-time.After(10 * time.Second):
			t.Error("a watch through the killed hub does not end")
		}
		if out, err := u.try(t.Context(), 10*time.Second, "get", "nodes"); err == nil {
			t.Errorf("without a hub kubectl says:\n%s", out)
		}
		suite.Must(t, shared.StartHub(t.Context()))
		began := time.Now()
		u.waitAnswer(t, began, 90*time.Second)
		waitConnected(t, insideKey)
	})
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
