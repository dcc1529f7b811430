//go:build e2e && full

package chart

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/e2e/hosts"
	"github.com/drover-dev/drover/e2e/lab"
	"github.com/drover-dev/drover/e2e/scenarios/suite"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
)

// bundledVersion is that of an image that is in no registry.
const bundledVersion = "v0.0.0-bundle"

// TestReplicas installs three replicas on the three nodes of a management cluster, and takes the power away from the node of the leader
// while a cluster is upgraded: the others finish the upgrade, and the third is back when the node is. Then two nodes are drained at once.
func TestReplicas(t *testing.T) {
	m := &management{replicas: 3, downstream: client.ObjectKey{Namespace: "fleet-default", Name: "edge"}}
	m.makeCluster(t, "manager6", "edge6")
	nodes := map[string]*hosts.Host{m.host.Name: m.host}
	suite.Step(t, "two workers join the management cluster", func(t *testing.T) {
		command, err := shared.NodeCommand(t.Context(), client.ObjectKey{Namespace: "fleet-default", Name: m.host.Name}, "--worker")
		suite.Must(t, err)
		for _, name := range []string{"manager7", "manager8"} {
			nodes[name], err = shared.AddHost(t.Context(), name)
			suite.Must(t, err)
			suite.Must(t, shared.Register(t.Context(), nodes[name], command))
		}
		suite.Must(t, shared.WaitFor(t.Context(), "there are three nodes", 5*time.Minute, func(ctx context.Context) (bool, string) {
			list := &corev1.NodeList{}
			err := m.api.List(ctx, list)
			return len(list.Items) == len(nodes), fmt.Sprintf("there are %d: %v", len(list.Items), err)
		}))
		shared.RunKubectl(t, m.kubeconfig, "wait", "--for=condition=Ready", "--timeout=5m", "node", "--all")
	})
	suite.Step(t, "the nodes import the hub's image from a bundle, as no registry has it", func(t *testing.T) {
		raw, err := os.ReadFile(makeBundle(t))
		suite.Must(t, err)
		for _, node := range nodes {
			suite.Must(t, os.WriteFile(node.Path("/root/images.tar"), raw, 0o600))
			res, err := node.Exec(t.Context(), "ctr", "--namespace", "k8s.io", "images", "import", "/root/images.tar")
			suite.Must(t, err)
			if res.ExitCode != 0 {
				t.Fatalf("ctr on %s ends with %d: %s%s", node.Name, res.ExitCode, res.Stdout, res.Stderr)
			}
		}
	})
	suite.Step(t, "helm installs three replicas, each on a node of its own", func(t *testing.T) {
		m.chart = makeFile(t, "chart", bundledVersion, "chart/drover-"+bundledVersion[1:]+".tgz")
		m.installRestricted(t)
		used := map[string]string{}
		for _, pod := range m.pods(t) {
			used[pod.Spec.NodeName] = pod.Name
		}
		if len(used) != len(nodes) {
			t.Errorf("the replicas are on the nodes %v", used)
		}
	})
	suite.Step(t, "a machine becomes a cluster of that hub", m.makeDownstream)
	suite.Must(t, shared.Release(t.Context(), lab.NextVersion))
	suite.Step(t, "the node of the leader loses power while the cluster is upgraded, and another replica goes on", func(t *testing.T) {
		leader := m.leaderOnWorker(t)
		lost := nodes[leader.Spec.NodeName]
		m.change(t, func(c *provisioningv1.Cluster) { c.Spec.KubernetesVersion = lab.NextVersion })
		began := time.Now()
		suite.Must(t, lost.Kill())
		suite.Must(t, shared.WaitFor(t.Context(), "another replica leads", time.Minute, func(ctx context.Context) (bool, string) {
			now, err := m.leader(ctx)
			return err == nil && now != "" && now != leader.Name, "the leader is " + now
		}))
		t.Logf("another replica led after %.1f s", time.Since(began).Seconds())
		suite.Must(t, shared.WaitFor(t.Context(), "the Node has the new version", 5*time.Minute, func(ctx context.Context) (bool, string) {
			got, err := shared.TryKubectl(ctx, m.userKubeconfig(t), "get", "nodes", "--output",
				"jsonpath={.items[*].status.nodeInfo.kubeletVersion}")
			return err == nil && got == lab.NextVersion, fmt.Sprintf("it has %s: %v", got, err)
		}))
		suite.Must(t, shared.WaitClusterReady(t.Context(), m.api, m.downstream, 5*time.Minute))
		t.Logf("the cluster was upgraded after %.1f s", time.Since(began).Seconds())
		m.checkReachable(t)
		suite.Must(t, lost.Boot(t.Context()))
	})
	suite.Step(t, "the third replica is back when its node is", func(t *testing.T) {
		m.waitReplicas(t)
		m.addManifest(t, "back")
		m.checkReachable(t)
	})
	suite.Step(t, "both workers are drained at once, and the replicas go one after the other", func(t *testing.T) {
		report, least := m.watchAccess(t), m.watchReady(t)
		var drains errgroup.Group
		for _, node := range []string{"manager7", "manager8"} {
			drains.Go(func() error {
				_, err := shared.TryKubectl(t.Context(), m.kubeconfig, "drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=5m")
				return err
			})
		}
		suite.Must(t, drains.Wait())
		m.waitReplicas(t)
		report()
		if n := least(); n < m.replicas-1 {
			t.Errorf("%d replicas were ready, which is less than the budget allows", n)
		}
		for _, pod := range m.pods(t) {
			if pod.Spec.NodeName != m.host.Name {
				t.Errorf("%s is on %s, which was drained", pod.Name, pod.Spec.NodeName)
			}
		}
		m.addManifest(t, "drained")
	})
}

// watchReady counts the replicas that are ready. The returned function ends that, and returns how many there were at the least.
func (m *management) watchReady(t *testing.T) (least func() int32) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	fewest := make(chan int32, 1)
	go func() {
		n := m.replicas
		for ; ctx.Err() == nil; time.Sleep(100 * time.Millisecond) {
			d := &appsv1.Deployment{}
			if m.api.Get(ctx, client.ObjectKey{Namespace: namespace, Name: hubName}, d) == nil {
				n = min(n, d.Status.ReadyReplicas)
			}
		}
		fewest <- n
	}()
	return func() int32 {
		cancel()
		return <-fewest
	}
}

// makeBundle writes the hub's image into an archive as a release has it, and returns its path.
func makeBundle(t *testing.T) string {
	t.Helper()
	file := filepath.Join(shared.Dir, "images.tar")
	buildImages(t, "--version", bundledVersion, "--only", "hub", "--bundle", file)
	return file
}

// pods are the replicas of the hub.
func (m *management) pods(t *testing.T) []corev1.Pod {
	t.Helper()
	list := &corev1.PodList{}
	suite.Must(t, m.api.List(t.Context(), list, client.InNamespace(namespace)))
	return list.Items
}

// leaderOnWorker makes sure that the leader is not on the node whose address is that of the gateway, and returns it.
func (m *management) leaderOnWorker(t *testing.T) (leader corev1.Pod) {
	t.Helper()
	suite.Must(t, shared.WaitFor(t.Context(), "the leader is on a worker", 5*time.Minute, func(ctx context.Context) (bool, string) {
		name, err := m.leader(ctx)
		if err != nil {
			return false, err.Error()
		}
		pods := m.pods(t)
		i := slices.IndexFunc(pods, func(pod corev1.Pod) bool { return pod.Name == name })
		if i < 0 {
			return false, "it has no Pod"
		}
		if leader = pods[i]; leader.Spec.NodeName != m.host.Name {
			return true, ""
		}
		return false, fmt.Sprintf("it is on %s, and is deleted (%v)", m.host.Name, m.api.Delete(ctx, &leader))
	}))
	m.waitReplicas(t)
	return leader
}
