package clusters

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/plan/rollout"
	"github.com/drover-dev/drover/hub/server"
	"github.com/drover-dev/drover/hub/testenv"
	"github.com/drover-dev/drover/hub/testenv/workload"
)

// requiredFields are the fields that must be set while a condition is True. Each function returns the missing ones.
var requiredFields = map[string]func(client.Object) string{
	"Cluster Created": requires(func(c *provisioningv1.Cluster) []string {
		return missing("clusterName", c.Status.ClusterName != "", "fleetWorkspaceName", c.Status.FleetWorkspaceName != "")
	}),
	"Cluster Ready": requires(func(c *provisioningv1.Cluster) []string {
		return missing("ready", c.Status.Ready, "clientSecretName", c.Status.ClientSecretName != "", "observedGeneration",
			c.Status.ObservedGeneration > 0)
	}),
	"ManagementCluster Ready": requires(func(c *managementv3.Cluster) []string {
		return missing("driver", c.Status.Driver != "", "provider", c.Status.Provider != "")
	}),
	"ClusterRegistrationToken Ready": requires(func(c *managementv3.ClusterRegistrationToken) []string {
		return missing("tokenSecretName", c.Status.TokenSecretName != "", "observedGeneration", c.Status.ObservedGeneration > 0,
			"nodeCommand", c.Status.NodeCommand != "" || !c.Spec.Serves(managementv3.MachinesPurpose))
	}),
	"RKEControlPlane Ready": requires(func(c *rkev1.RKEControlPlane) []string {
		return missing("ready", c.Status.Ready, "appliedSpec", c.Status.AppliedSpec != nil, "observedGeneration", c.Status.ObservedGeneration > 0,
			"version", c.Status.Version != "")
	}),
	"RKEControlPlane Available": requires(func(c *rkev1.RKEControlPlane) []string {
		return missing("initialization", ptr.Deref(c.Status.Initialization.ControlPlaneInitialized, false), "initialized", c.Status.Initialized)
	}),
	"RKEControlPlane MachinesReady": requires(func(c *rkev1.RKEControlPlane) []string {
		return missing("replicas", c.Status.Replicas != nil, "readyReplicas", c.Status.ReadyReplicas != nil, "selector", c.Status.Selector != "")
	}),
	"RKECluster Ready": requires(func(c *rkev1.RKECluster) []string {
		return missing("ready", c.Status.Ready, "initialization", ptr.Deref(c.Status.Initialization.Provisioned, false))
	}),
	"RKEBootstrap DataSecretReady": requires(func(b *rkev1.RKEBootstrap) []string {
		return missing("dataSecretName", b.Status.DataSecretName != nil, "initialization",
			ptr.Deref(b.Status.Initialization.DataSecretCreated, false),
			"ready", b.Status.Ready, "observedGeneration", b.Status.ObservedGeneration > 0)
	}),
	"CustomMachine NodeFound": requires(func(c *rkev1.CustomMachine) []string {
		return missing("spec.providerID", c.Spec.ProviderID != "", "addresses", len(c.Status.Addresses) > 0)
	}),
	"CustomMachine Ready": requires(func(c *rkev1.CustomMachine) []string {
		return missing("ready", c.Status.Ready, "initialization", ptr.Deref(c.Status.Initialization.Provisioned, false))
	}),
}

func requires[T client.Object](check func(T) []string) func(client.Object) string {
	return func(object client.Object) string { return strings.Join(check(object.(T)), ", ") }
}

// missing takes names of fields, each with whether it is set.
func missing(fields ...any) (names []string) {
	for i := 0; i < len(fields); i += 2 {
		if !fields[i+1].(bool) {
			names = append(names, fields[i].(string))
		}
	}
	return names
}

// statusRecorder watches every version of every object with conditions.
type statusRecorder struct {
	mu sync.Mutex
	// kept counts, by promise, how often it was seen kept; broken are those that were not.
	kept   map[string]int
	broken []string
	// writes counts the changes of an object.
	writes map[string]int
}

func watchStatus(t *testing.T) *statusRecorder {
	t.Helper()
	scheme, err := server.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.NewWithWatch(env.Config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	o := &statusRecorder{kept: map[string]int{}, writes: map[string]int{}}
	var done sync.WaitGroup
	for kind, list := range map[string]client.ObjectList{
		"Cluster": &provisioningv1.ClusterList{}, "ManagementCluster": &managementv3.ClusterList{},
		"ClusterRegistrationToken": &managementv3.ClusterRegistrationTokenList{},
		"RKEControlPlane":          &rkev1.RKEControlPlaneList{}, "RKECluster": &rkev1.RKEClusterList{},
		"RKEBootstrap": &rkev1.RKEBootstrapList{}, "CustomMachine": &rkev1.CustomMachineList{},
	} {
		w, err := c.Watch(t.Context(), list)
		if err != nil {
			t.Fatal(err)
		}
		done.Go(func() {
			for event := range w.ResultChan() {
				o.see(kind, event)
			}
		})
		t.Cleanup(w.Stop)
	}
	t.Cleanup(done.Wait)
	return o
}

func (o *statusRecorder) see(kind string, event watch.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	object, ok := event.Object.(interface {
		client.Object
		conditions.Getter
	})
	if !ok {
		o.broken = append(o.broken, fmt.Sprintf("the watch of %s ended with %+v", kind, event.Object))
		return
	}
	if event.Type == watch.Modified {
		o.writes[kind+" "+object.GetName()]++
	}
	for _, c := range object.GetConditions() {
		name := kind + " " + c.Type
		check, promised := requiredFields[name]
		if !promised || c.Status != metav1.ConditionTrue {
			continue
		}
		if lacks := check(object); lacks != "" {
			o.broken = append(o.broken, fmt.Sprintf("%s is True in %s %s, resource version %s, without %s", c.Type, kind, object.GetName(),
				object.GetResourceVersion(), lacks))
		} else {
			o.kept[name]++
		}
	}
}

// TestStatusInOneWrite provisions a cluster and deletes it. At no time is a condition True while the fields that it implies are not set.
func TestStatusInOneWrite(t *testing.T) {
	seen := watchStatus(t)
	r := env.NewCluster(t, "status", nil)
	api := workload.Start()
	t.Cleanup(api.Stop)
	kubeconfig, err := api.KubeconfigSecret(r.Cluster.Namespace, r.Cluster.Name)
	if err != nil {
		t.Fatal(err)
	}
	env.Create(t, kubeconfig)
	m := r.Register("status", "192.0.2.9", "etcd", "control-plane", "worker")
	m.AwaitPlan("")
	m.Take()
	m.Succeed()
	machine := &clusterv1.Machine{}
	r.Read(m.Name, machine)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: m.Name,
		Labels: map[string]string{rkev1.MachineUIDLabel: string(machine.UID), rollout.EtcdRoleLabel: "true"}}}
	node.Spec.ProviderID = "k3s://" + m.Name
	node.Status.NodeInfo.KubeletVersion = "v1.36.3+k3s1"
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.9"}}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue},
		{Type: rollout.EtcdIsVoter, Status: corev1.ConditionTrue}}
	api.SetNode(node)
	testenv.Condition(t, env, r.Cluster, provisioningv1.ReadyCondition, metav1.ConditionTrue, "")
	management := &managementv3.Cluster{ObjectMeta: metav1.ObjectMeta{Name: r.Cluster.Status.ClusterName}}
	testenv.Condition(t, env, management, managementv3.ReadyCondition, metav1.ConditionTrue, "")
	custom := &rkev1.CustomMachine{ObjectMeta: metav1.ObjectMeta{Namespace: r.Cluster.Namespace, Name: m.Name}}
	testenv.Condition(t, env, custom, rkev1.ReadyCondition, metav1.ConditionTrue, "")
	env.Delete(t, r.Cluster)
	env.Gone(t, r.Cluster)

	testenv.Until(t, "all that happened to be seen", func() error {
		seen.mu.Lock()
		defer seen.mu.Unlock()
		for name := range requiredFields {
			if seen.kept[name] == 0 {
				return fmt.Errorf("%s was never seen True", name)
			}
		}
		return nil
	})
	seen.mu.Lock()
	defer seen.mu.Unlock()
	for _, broken := range seen.broken {
		t.Error(broken)
	}
	for _, name := range slices.Sorted(maps.Keys(seen.writes)) {
		t.Logf("%3d writes of %s", seen.writes[name], name)
	}
}
