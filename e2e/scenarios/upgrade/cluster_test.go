//go:build e2e && full

package upgrade

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
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

// machineUIDs are the Machines of the cluster.
func machineUIDs(t *testing.T, key client.ObjectKey) map[string]types.UID {
	t.Helper()
	list := &clusterv1.MachineList{}
	suite.Must(t, shared.Hub.List(t.Context(), list, client.InNamespace(key.Namespace),
		client.MatchingLabels{clusterv1.ClusterNameLabel: key.Name}))
	out := map[string]types.UID{}
	for _, m := range list.Items {
		out[m.Name] = m.UID
	}
	return out
}

func applyCluster(t *testing.T, key client.ObjectKey, d lab.Distribution) {
	t.Helper()
	text := strings.NewReplacer("NAMESPACE", key.Namespace, "NAME", key.Name, "VERSION", d.Version, "REGISTRY",
		shared.RegistryURL()).Replace(clusterYAML)
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

// waitNodes waits until every machine has a Ready Node of a version that takes as many Pods as given, and those with etcd vote.
func waitNodes(t *testing.T, key client.ObjectKey, version string, pods int64) {
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
			good := isReady(&node) && !node.Spec.Unschedulable && node.Status.NodeInfo.KubeletVersion == version &&
				node.Status.Capacity.Pods().Value() == pods
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
		if err := d.Decode(o); errors.Is(err, io.EOF) {
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

// starts tells when systemd has started the distribution on each machine.
func starts(t *testing.T, d lab.Distribution, machines map[string]*hosts.Host) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(machines)) {
		unit := d.ServerUnit
		if slices.Contains(workers, name) {
			unit = d.AgentUnit
		}
		res, err := machines[name].Exec(t.Context(), "systemctl", "show", "-p", "ActiveEnterTimestampMonotonic,ExecMainPID", unit)
		suite.Must(t, err)
		out[name] = res.Stdout
	}
	return out
}
