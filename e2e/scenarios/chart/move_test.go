//go:build e2e && full

package chart

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/e2e/lab"
	"github.com/drover-dev/drover/e2e/relay"
	"github.com/drover-dev/drover/e2e/scenarios/suite"
)

// TestMoveIntoCluster moves a hub with its embedded API server into a management cluster, with a cluster of it, as docs/clusterctl.md says.
// Nothing is done on the machine: its agent follows when the address of the hub leads there, and its server is not restarted.
func TestMoveIntoCluster(t *testing.T) {
	m := &management{replicas: 2, downstream: client.ObjectKey{Namespace: "fleet-edge", Name: "edge"}}
	m.makeCluster(t, "manager3", "edge3")
	suite.Step(t, "a machine becomes a cluster of the hub that is to move", func(t *testing.T) {
		suite.Must(t, shared.Hub.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: m.downstream.Namespace}}))
		suite.Must(t, shared.ApplyCluster(t.Context(), shared.Hub, m.downstream))
		command, err := shared.NodeCommand(t.Context(), m.downstream, lab.AllRoles...)
		suite.Must(t, err)
		suite.Must(t, shared.Register(t.Context(), m.machine, command))
		suite.Must(t, shared.WaitClusterReady(t.Context(), shared.Hub, m.downstream, 5*time.Minute))
		suite.Must(t, shared.WaitConnected(t.Context(), shared.Hub, m.downstream, 3*time.Minute))
		m.waitQuiet(t)
	})
	server, agent := m.serverStarted(t), startOf(t, m.machine, agentUnit)
	suite.Step(t, "hub copy-identity and helm make the same hub in the management cluster", func(t *testing.T) {
		t.Log(m.run(t, "hub", "copy-identity", "--kubeconfig", shared.HubKubeconfig(), "--to-kubeconfig", m.kubeconfig,
			"--to-system-namespace", namespace))
		m.installMoved(t)
		m.waitReplicas(t)
	})
	suite.Step(t, "clusterctl moves the cluster", func(t *testing.T) {
		t.Log(m.script(t, fmt.Sprintf("clusterctl move --namespace %s --kubeconfig '%s' --to-kubeconfig '%s' 2>&1", m.downstream.Namespace,
			shared.HubKubeconfig(), m.kubeconfig), "CLUSTERCTL_DISABLE_VERSIONCHECK=true", "GOPROXY=off"))
	})
	suite.Must(t, shared.StopHub())
	m.takeAddress(t)
	suite.Step(t, "the agents follow when the address leads to the management cluster", func(t *testing.T) {
		began := time.Now()
		suite.Must(t, shared.WaitConnected(t.Context(), m.api, m.downstream, 5*time.Minute))
		t.Logf("the cluster-agent was connected after %.1f s", time.Since(began).Seconds())
		suite.Must(t, shared.WaitClusterReady(t.Context(), m.api, m.downstream, 5*time.Minute))
		t.Logf("the Cluster was ready after %.1f s", time.Since(began).Seconds())
	})
	suite.Step(t, "the cluster is used and changed through the hub in the management cluster", func(t *testing.T) {
		if out := shared.RunKubectl(t, m.userKubeconfig(t), "get", "nodes", "--output", "name"); out != "node/"+m.machine.Name+"\n" {
			t.Errorf("kubectl get nodes says %q", out)
		}
		m.addManifest(t, "moved")
		if now := m.serverStarted(t); now != server {
			t.Errorf("the server of the machine was restarted: %s, was %s", now, server)
		}
		if now := startOf(t, m.machine, agentUnit); now != agent {
			t.Errorf("the agent of the machine was restarted: %s, was %s", now, agent)
		}
	})
}

// installMoved installs the chart with the server URL of the hub that moves.
func (m *management) installMoved(t *testing.T) {
	t.Helper()
	chart := makeFile(t, "chart", version, "chart/drover-"+version[1:]+".tgz")
	values := filepath.Join(shared.Dir, "moved-values.yaml") // helm splits names of files at commas
	suite.Must(t, os.WriteFile(values, []byte(fmt.Sprintf("serverURL: %s\nreplicas: 2\nexposure: {type: nodePort, nodePort: %d}\n"+
		"clusterctl: {inventory: true}\n", shared.ServerURL(), nodePort)), 0o600))
	m.helm(t, "install", release, chart, "--values", values, "--wait", "--timeout", "5m")
}

// takeAddress lets the address of the hub that was stopped lead to the gateway in the management cluster, and starts that hub again when
// the test ends.
func (m *management) takeAddress(t *testing.T) {
	t.Helper()
	server, err := url.Parse(shared.ServerURL())
	suite.Must(t, err)
	port, err := strconv.Atoi(server.Port())
	suite.Must(t, err)
	listener, err := shared.Listen(port)
	suite.Must(t, err)
	gateway := fmt.Sprintf("%s:%d", m.host.IP(), nodePort)
	line := relay.New(listener, func(ctx context.Context) (net.Conn, error) { return shared.Dial(ctx, "tcp", gateway) }, 1)
	t.Cleanup(func() {
		line.Close()
		if err := shared.StartHub(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
}
