//go:build e2e && full

package upgrade

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/e2e/hosts"
	"github.com/drover-dev/drover/e2e/lab"
	"github.com/drover-dev/drover/e2e/scenarios/suite"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// The machines of the cluster by their role.
var (
	etcds     = []string{"etcd1", "etcd2", "etcd3"}
	controls  = []string{"control1", "control2"}
	workers   = []string{"worker1", "worker2"}
	everybody = slices.Concat(etcds, controls, workers)
)

// TestUpgrade makes a cluster of machines with split roles and changes it in place: what it deploys, without a restart, its
// configuration, and its version, with drain. The hub is killed in the middle of each.
func TestUpgrade(t *testing.T) { upgrade(t, lab.K3s, "split") }

// TestUpgradeRKE2 does so with a cluster of RKE2, whose control plane is static pods.
func TestUpgradeRKE2(t *testing.T) {
	suite.Step(t, "the installer images of RKE2 are in the registry", func(t *testing.T) {
		for _, version := range []string{lab.RKE2.Version, lab.RKE2.NextVersion} {
			suite.Must(t, shared.Release(t.Context(), version))
		}
	})
	upgrade(t, lab.RKE2, "splitr")
}

func upgrade(t *testing.T, d lab.Distribution, name string) {
	key := client.ObjectKey{Namespace: "fleet-default", Name: name}
	machines := map[string]*hosts.Host{}
	for _, name := range everybody {
		machines[name] = shared.NewHost(t, name)
	}
	servers := []*hosts.Host{machines["control1"], machines["control2"]}

	suite.Step(t, "seven machines with split roles become a cluster, although the hub is killed meanwhile", func(t *testing.T) {
		shared.MakeNamespace(t, key.Namespace)
		applyCluster(t, key, d)
		began := time.Now()
		registerAll(t, key, machines)
		shared.RestartHub(t)
		suite.Must(t, shared.WaitClusterReady(t.Context(), shared.Hub, key, 15*time.Minute))
		waitNodes(t, key, d.Version, 110)
		t.Logf("%.0f s from the first registration", time.Since(began).Seconds())
	})
	suite.Step(t, "a service runs on the workers", func(t *testing.T) { runGuests(t, key) })
	suite.Step(t, "a change of what the cluster deploys restarts nothing", func(t *testing.T) {
		before := starts(t, d, machines)
		w := watchCluster(t, key, machines, servers)
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
		if diff := gocmp.Diff(before, starts(t, d, machines)); diff != "" {
			t.Errorf("something was restarted:\n%s", diff)
		}
	})
	suite.Step(t, "a change of kubelets' arguments and of registries restarts every machine in its order, and the API and the service stay",
		func(t *testing.T) {
			changeInPlace(t, key, d, machines, servers, d.Version, 77, func(c *provisioningv1.Cluster) {
				c.Spec.RKEConfig.MachineGlobalConfig.Data = map[string]any{"kubelet-arg": []any{"max-pods=77"}}
				c.Spec.RKEConfig.Registries.Mirrors["registry.example"] = rkev1.Mirror{Endpoints: []string{shared.RegistryURL()}}
			})
			for name, host := range machines {
				raw, err := os.ReadFile(host.Path(d.ConfigDir() + "/registries.yaml"))
				if err != nil || !strings.Contains(string(raw), "registry.example") {
					t.Errorf("%s: registries.yaml does not name the new mirror (%v)", name, err)
				}
			}
		})
	suite.Step(t, "the version changes on every machine in its order, with drain, and the API and the service stay", func(t *testing.T) {
		changeInPlace(t, key, d, machines, servers, d.NextVersion, 77,
			func(c *provisioningv1.Cluster) { c.Spec.KubernetesVersion = d.NextVersion })
	})
	suite.Step(t, "once all is done nobody writes", func(t *testing.T) {
		shared.WaitQuiet(t, 20*time.Second, 5*time.Minute)
		shared.NoWrites(t, time.Minute)
	})
	suite.Step(t, "the cluster can be deleted, although the hub is killed meanwhile", func(t *testing.T) {
		suite.Must(t, shared.Hub.Delete(t.Context(),
			&provisioningv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}))
		shared.RestartHub(t)
		suite.Must(t, shared.WaitGone(t.Context(), shared.Hub, key, 5*time.Minute))
	})
}

// changeInPlace makes a change that restarts every machine, kills the hub in the middle of each tier, waits until every Node
// has the version and takes as many Pods as given, and checks what nobody may have noticed.
func changeInPlace(t *testing.T, key client.ObjectKey, d lab.Distribution, machines map[string]*hosts.Host, servers []*hosts.Host,
	version string, pods int64, edit func(*provisioningv1.Cluster)) {
	t.Helper()
	began, before, uids := time.Now(), starts(t, d, machines), machineUIDs(t, key)
	w := watchCluster(t, key, machines, servers)
	logged := len(hubLog(t))
	change(t, key, edit)
	for _, n := range []int{1, 4, 6} {
		waitFor(t, fmt.Sprintf("%d Nodes have changed", n), 10*time.Minute, func(context.Context) (bool, string) {
			changed := w.changed()
			return len(changed) >= n, fmt.Sprintf("%d Nodes have: %s", len(changed), strings.Join(changed, ", "))
		})
		shared.RestartHub(t)
	}
	waitNodes(t, key, version, pods)
	suite.Must(t, shared.WaitClusterReady(t.Context(), shared.Hub, key, 10*time.Minute))
	w.report(t)
	after := starts(t, d, machines)
	assertOrder(t, w, after, hubLog(t)[logged:])
	for name, start := range after {
		if start == before[name] {
			t.Errorf("%s was not restarted", name)
		}
	}
	if diff := gocmp.Diff(uids, machineUIDs(t, key)); diff != "" {
		t.Errorf("machines were replaced:\n%s", diff)
	}
	t.Logf("%.0f s for the change", time.Since(began).Seconds())
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

// assertOrder checks that the tiers changed one after the other, and that each machine with workloads to lose was drained. What the witness
// has not seen, since nobody looked in that moment, the starts of the distribution and the hub's log tell.
func assertOrder(t *testing.T, w *witness, starts map[string]string, log string) {
	t.Helper()
	rank := func(name string) int {
		return slices.IndexFunc([][]string{etcds, controls, workers}, func(tier []string) bool { return slices.Contains(tier, name) })
	}
	inOrder := func(names []string) bool {
		return slices.IsSortedFunc(names, func(a, b string) int { return rank(a) - rank(b) }) && len(names) == len(everybody)
	}
	// All machines have the clock of this one.
	started := slices.SortedFunc(maps.Keys(starts), func(a, b string) int { return cmp.Compare(startOf(starts[a]), startOf(starts[b])) })
	if !inOrder(w.order) && !inOrder(started) {
		t.Errorf("the machines changed in the order %s, and started in the order %s", strings.Join(w.order, ", "), strings.Join(started, ", "))
	}
	for _, name := range slices.Concat(controls, workers) {
		cordons := regexp.MustCompile(`Cordoned or uncordoned a Node.* Node=` + name + ` .*unschedulable=true`)
		if !w.seen[name].cordoned && !cordons.MatchString(log) {
			t.Errorf("Node %s was not cordoned before it changed", name)
		}
	}
}

var startRE = regexp.MustCompile(`ActiveEnterTimestampMonotonic=(\d+)`)

// startOf is the time of a start, in microseconds of the machine's clock.
func startOf(start string) int {
	if found := startRE.FindStringSubmatch(start); found != nil {
		at, _ := strconv.Atoi(found[1])
		return at
	}
	return 0
}

func hubLog(t *testing.T) string {
	t.Helper()
	log, err := os.ReadFile(shared.LogFile("hub"))
	suite.Must(t, err)
	return string(log)
}

func waitFor(t *testing.T, what string, limit time.Duration, check lab.Check) {
	t.Helper()
	suite.Must(t, shared.WaitFor(t.Context(), what, limit, check))
}
