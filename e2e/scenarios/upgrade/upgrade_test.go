//go:build e2e && full

package upgrade

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/drover-dev/drover/e2e/hosts"
	"github.com/drover-dev/drover/e2e/lab"
	"github.com/drover-dev/drover/e2e/scenarios/suite"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
)

//go:embed cluster.yaml
var clusterYAML string

//go:embed guests.yaml
var guestsYAML []byte

// The machines of the cluster by their role.
var (
	etcds     = []string{"etcd1", "etcd2", "etcd3"}
	controls  = []string{"control1", "control2"}
	workers   = []string{"worker1", "worker2"}
	everybody = slices.Concat(etcds, controls, workers)
)

// TestUpgrade makes a cluster of machines with split roles and changes it in place: its configuration, without a restart,
// and its version, with drain. The hub is killed in the middle of each.
func TestUpgrade(t *testing.T) {
	key := client.ObjectKey{Namespace: "fleet-default", Name: "split"}
	machines := map[string]*hosts.Host{}
	for _, name := range everybody {
		machines[name] = shared.NewHost(t, name)
	}
	servers := []*hosts.Host{machines["control1"], machines["control2"]}

	suite.Step(t, "seven machines with split roles become a cluster, although the hub is killed meanwhile", func(t *testing.T) {
		shared.MakeNamespace(t, key.Namespace)
		applyCluster(t, key)
		began := time.Now()
		registerAll(t, key, machines)
		shared.RestartHub(t)
		suite.Must(t, shared.WaitClusterReady(t.Context(), shared.Hub, key, 15*time.Minute))
		waitNodes(t, key, lab.Version)
		t.Logf("%.0f s from the first registration", time.Since(began).Seconds())
	})
	suite.Step(t, "a service runs on the workers", func(t *testing.T) { runGuests(t, key) })
	suite.Step(t, "a change of what the cluster deploys restarts nothing", func(t *testing.T) {
		before := starts(t, machines)
		w := watchCluster(t, key, servers)
		change(t, key, func(c *provisioningv1.Cluster) {
			c.Spec.RKEConfig.AdditionalManifest = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: note, namespace: default}\ndata: {text: hello}\n"
		})
		shared.RestartHub(t)
		waitFor(t, "ConfigMap note is in the cluster", 5*time.Minute, func(ctx context.Context) (bool, string) {
			c, _, err := shared.ClusterClient(ctx, shared.Hub, key)
			if err == nil {
				err = c.Get(ctx, client.ObjectKey{Namespace: "default", Name: "note"}, &corev1.ConfigMap{})
			}
			return err == nil, fmt.Sprint(err)
		})
		suite.Must(t, shared.WaitClusterReady(t.Context(), shared.Hub, key, 5*time.Minute))
		w.report(t)
		if diff := cmp.Diff(before, starts(t, machines)); diff != "" {
			t.Errorf("something was restarted:\n%s", diff)
		}
	})
	suite.Step(t, "the version changes on every machine in its order, with drain, and the API and the service stay", func(t *testing.T) {
		began := time.Now()
		w := watchCluster(t, key, servers)
		change(t, key, func(c *provisioningv1.Cluster) { c.Spec.KubernetesVersion = lab.NextVersion })
		for _, n := range []int{1, 4, 6} {
			waitFor(t, fmt.Sprintf("%d Nodes have changed", n), 10*time.Minute, func(context.Context) (bool, string) {
				changed := w.changed()
				return len(changed) >= n, fmt.Sprintf("%d Nodes have: %s", len(changed), strings.Join(changed, ", "))
			})
			shared.RestartHub(t)
		}
		waitNodes(t, key, lab.NextVersion)
		suite.Must(t, shared.WaitClusterReady(t.Context(), shared.Hub, key, 10*time.Minute))
		w.report(t)
		assertOrder(t, w)
		t.Logf("%.0f s for the upgrade", time.Since(began).Seconds())
	})
	suite.Step(t, "once all is done nobody writes", func(t *testing.T) { shared.NoWrites(t, time.Minute) })
	suite.Step(t, "the cluster can be deleted", func(t *testing.T) { shared.DeleteCluster(t, key) })
}

func applyCluster(t *testing.T, key client.ObjectKey) {
	t.Helper()
	text := strings.NewReplacer("NAMESPACE", key.Namespace, "NAME", key.Name, "VERSION", lab.Version, "REGISTRY", shared.RegistryURL()).Replace(clusterYAML)
	cluster := &provisioningv1.Cluster{}
	suite.Must(t, yaml.UnmarshalStrict([]byte(text), cluster))
	suite.Must(t, shared.Hub.Create(t.Context(), cluster))
}

// registerAll registers all machines at once.
func registerAll(t *testing.T, key client.ObjectKey, machines map[string]*hosts.Host) {
	t.Helper()
	var wg sync.WaitGroup
	for role, names := range map[string][]string{"--etcd": etcds, "--controlplane": controls, "--worker": workers} {
		command, err := shared.NodeCommand(t.Context(), key, role)
		suite.Must(t, err)
		for _, name := range names {
			wg.Go(func() {
				if err := shared.Register(t.Context(), machines[name], command); err != nil {
					t.Error(err)
				}
			})
		}
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

// waitNodes waits until every machine has a Ready Node of a version that takes Pods, and those with etcd vote.
func waitNodes(t *testing.T, key client.ObjectKey, version string) {
	t.Helper()
	waitFor(t, "every Node is Ready with "+version, 10*time.Minute, func(ctx context.Context) (bool, string) {
		nodes := &corev1.NodeList{}
		c, _, err := shared.ClusterClient(ctx, shared.Hub, key)
		if err == nil {
			err = c.List(ctx, nodes)
		}
		if err != nil {
			return false, err.Error()
		}
		missing := slices.Clone(everybody)
		for _, node := range nodes.Items {
			good := isReady(&node) && !node.Spec.Unschedulable && node.Status.NodeInfo.KubeletVersion == version
			if good && (!slices.Contains(etcds, node.Name) || votes(&node)) {
				missing = slices.DeleteFunc(missing, func(name string) bool { return name == node.Name })
			}
		}
		return len(missing) == 0, "not yet: " + strings.Join(missing, ", ")
	})
}

func votes(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == "EtcdIsVoter" && c.Status == corev1.ConditionTrue
	})
}

// runGuests deploys the guests and waits until all of them are there.
func runGuests(t *testing.T, key client.ObjectKey) {
	t.Helper()
	c, _, err := shared.ClusterClient(t.Context(), shared.Hub, key)
	suite.Must(t, err)
	for d := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(guestsYAML), 4096); ; {
		o := &unstructured.Unstructured{}
		if err := d.Decode(o); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		suite.Must(t, client.IgnoreAlreadyExists(c.Create(t.Context(), o)))
	}
	waitFor(t, "two guests are available", 5*time.Minute, func(ctx context.Context) (bool, string) {
		d := &appsv1.Deployment{}
		if err := c.Get(ctx, client.ObjectKey{Namespace: "default", Name: "guests"}, d); err != nil {
			return false, err.Error()
		}
		return d.Status.AvailableReplicas == 2, fmt.Sprintf("%d are", d.Status.AvailableReplicas)
	})
}

// change edits the Cluster as a user does.
func change(t *testing.T, key client.ObjectKey, edit func(*provisioningv1.Cluster)) {
	t.Helper()
	cluster := &provisioningv1.Cluster{}
	suite.Must(t, shared.Hub.Get(t.Context(), key, cluster))
	patch := client.MergeFrom(cluster.DeepCopy())
	edit(cluster)
	suite.Must(t, shared.Hub.Patch(t.Context(), cluster, patch))
}

// starts tells when systemd has started the distribution on each machine.
func starts(t *testing.T, machines map[string]*hosts.Host) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(machines)) {
		unit := "k3s"
		if slices.Contains(workers, name) {
			unit = "k3s-agent"
		}
		res, err := machines[name].Exec(t.Context(), "systemctl", "show", "-p", "ActiveEnterTimestampMonotonic,ExecMainPID", unit)
		suite.Must(t, err)
		out[name] = res.Stdout
	}
	return out
}

// assertOrder checks that the tiers changed one after the other, and that each machine with workloads to lose was drained.
func assertOrder(t *testing.T, w *witness) {
	t.Helper()
	rank := func(name string) int {
		return slices.IndexFunc([][]string{etcds, controls, workers}, func(tier []string) bool { return slices.Contains(tier, name) })
	}
	if !slices.IsSortedFunc(w.order, func(a, b string) int { return rank(a) - rank(b) }) || len(w.order) != len(everybody) {
		t.Errorf("the machines changed in the order %s", strings.Join(w.order, ", "))
	}
	for _, name := range slices.Concat(controls, workers) {
		if !w.seen[name].cordoned {
			t.Errorf("Node %s was not cordoned before it changed", name)
		}
	}
}

func waitFor(t *testing.T, what string, limit time.Duration, check lab.Check) {
	t.Helper()
	suite.Must(t, shared.WaitFor(t.Context(), what, limit, check))
}
