//go:build e2e

package scenarios

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/drover-dev/drover/e2e/hosts"
	"github.com/drover-dev/drover/e2e/lab"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
)

// TestRoad goes the whole road once: a Cluster of one custom machine with all roles, from kubectl apply to a pod that
// answers, and back until nothing of it is left in the hub.
func TestRoad(t *testing.T) {
	ctx := t.Context()
	key := client.ObjectKey{Namespace: "fleet-default", Name: "road"}
	host := newHost(t, "road1")
	makeNamespace(t, key.Namespace)
	before := inventory(t)

	step(t, "the administrator's kubeconfig is the administrator's alone, and kubectl works with it", func(t *testing.T) {
		info, err := os.Stat(shared.HubKubeconfig())
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("admin.kubeconfig: %v, %v", info.Mode(), err)
		}
		if out := kubectl(t, shared.HubKubeconfig(), "get", "namespaces"); !strings.Contains(out, key.Namespace) {
			t.Errorf("kubectl get namespaces says %q", out)
		}
	})
	var command string
	step(t, "an applied Cluster gets a registration command", func(t *testing.T) {
		must(t, shared.ApplyCluster(ctx, shared.hub, key))
		var err error
		command, _, err = shared.TokenCommand(ctx, shared.hub, key, lab.AllRoles...)
		if err != nil {
			t.Fatal(err)
		}
	})
	step(t, "the command makes the machine a Machine, and it gets a plan", func(t *testing.T) {
		must(t, shared.Register(ctx, host, command))
		machine, err := shared.WaitMachine(ctx, shared.hub, key)
		must(t, err)
		must(t, shared.WaitPlan(ctx, shared.hub, machine))
	})
	step(t, "the Node is Ready, as the kubeconfig Secret shows", func(t *testing.T) {
		must(t, shared.WaitNodeReady(ctx, shared.hub, key, 10*time.Minute))
	})
	step(t, "the Cluster is Ready", func(t *testing.T) {
		must(t, shared.WaitClusterReady(ctx, shared.hub, key, 5*time.Minute))
		assertReady(t, key)
	})
	step(t, "a pod from an image of the installer image runs and answers", func(t *testing.T) {
		answer, err := shared.RunHello(ctx, shared.hub, key, 5*time.Minute)
		must(t, err)
		t.Logf("it says %q", answer)
	})
	step(t, "the machine's credential opens its plan Secret and nothing else", func(t *testing.T) {
		if status := agentAccess(t, host, ""); status != 200 {
			t.Errorf("its plan Secret: %d", status)
		}
		for _, path := range []string{
			"/api/v1/secrets", "/api/v1/namespaces", "/apis/provisioning.cattle.io/v1/clusters",
			"/api/v1/namespaces/" + key.Namespace + "/secrets/" + key.Name + "-kubeconfig",
			"/api/v1/namespaces/" + key.Namespace + "/secrets/" + key.Name + "-ca",
		} {
			if status := agentAccess(t, host, path); status != 403 && status != 404 {
				t.Errorf("%s: %d", path, status)
			}
		}
	})
	step(t, "kubectl opens the cluster with the kubeconfig Secret", func(t *testing.T) {
		kubeconfig, err := shared.WriteClusterKubeconfig(ctx, shared.hub, key)
		must(t, err)
		if out := kubectl(t, kubeconfig, "get", "nodes"); !strings.Contains(out, host.Name) {
			t.Errorf("kubectl get nodes says %q", out)
		}
	})
	step(t, "the command can be run again, and makes no second machine", func(t *testing.T) {
		must(t, shared.Register(ctx, host, command))
		machines := &clusterv1.MachineList{}
		must(t, shared.hub.List(ctx, machines, client.InNamespace(key.Namespace)))
		if len(machines.Items) != 1 {
			t.Errorf("%d Machines", len(machines.Items))
		}
		must(t, shared.WaitClusterReady(ctx, shared.hub, key, 5*time.Minute))
	})
	step(t, "a hub that is started again finds the cluster Ready", func(t *testing.T) {
		must(t, shared.StopHub())
		must(t, shared.StartHub(ctx))
		must(t, shared.WaitClusterReady(ctx, shared.hub, key, 5*time.Minute))
		assertReady(t, key)
	})
	step(t, "a machine that loses power comes back", func(t *testing.T) {
		must(t, host.Kill())
		must(t, host.Boot(ctx))
		_, err := shared.RunHello(ctx, shared.hub, key, 5*time.Minute)
		must(t, err)
		must(t, shared.WaitClusterReady(ctx, shared.hub, key, 5*time.Minute))
	})
	step(t, "a deleted Cluster takes every object and credential with it", func(t *testing.T) {
		cluster := &provisioningv1.Cluster{}
		must(t, shared.hub.Get(ctx, key, cluster))
		must(t, shared.hub.Delete(ctx, cluster))
		must(t, shared.WaitGone(ctx, shared.hub, key, 5*time.Minute))
		var left []string
		err := shared.WaitFor(ctx, "nothing of the cluster is left", time.Minute, func(context.Context) (bool, string) {
			left = added(before, inventory(t))
			return len(left) == 0, "left: " + strings.Join(left, ", ")
		})
		if err != nil {
			t.Errorf("left behind:\n%s", strings.Join(left, "\n"))
		}
	})
	step(t, "the machine's credential is worth nothing any more", func(t *testing.T) {
		if status := agentAccess(t, host, ""); status != 401 {
			t.Errorf("the hub answers the deleted machine with %d", status)
		}
	})
}

func agentAccess(t *testing.T, host *hosts.Host, path string) int {
	t.Helper()
	status, err := shared.AgentAccess(t.Context(), host, path)
	must(t, err)
	return status
}

// step runs a part of a scenario; the rest of the scenario is pointless once one has failed.
func step(t *testing.T, name string, run func(t *testing.T)) {
	t.Helper()
	began := time.Now()
	if !t.Run(name, run) {
		t.FailNow()
	}
	t.Logf("%s (%.1f s)", name, time.Since(began).Seconds())
}

// must fails the test at once.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func makeNamespace(t *testing.T, name string) {
	t.Helper()
	ns := &corev1.Namespace{}
	ns.Name = name
	if err := shared.hub.Create(t.Context(), ns); client.IgnoreAlreadyExists(err) != nil {
		t.Fatal(err)
	}
	// What every namespace gets a moment later is not the cluster's.
	must(t, shared.WaitFor(t.Context(), "namespace "+name+" has its ServiceAccount", time.Minute, func(ctx context.Context) (bool, string) {
		_ = shared.hub.Get(ctx, client.ObjectKey{Namespace: name, Name: "default"}, &corev1.ServiceAccount{})
		return true, ""
	}))
}

func kubectl(t *testing.T, kubeconfig string, args ...string) string {
	t.Helper()
	cmd, err := shared.Kubectl(t.Context(), kubeconfig, args...)
	must(t, err)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		t.Fatalf("kubectl %s: %v: %s", strings.Join(args, " "), err, out.String())
	}
	return out.String()
}

// assertReady checks what stands between the Cluster and its Node: Cluster API sees all of it as complete, too.
func assertReady(t *testing.T, key client.ObjectKey) {
	t.Helper()
	ctx := t.Context()
	capi := &clusterv1.Cluster{}
	must(t, shared.hub.Get(ctx, key, capi))
	if init := capi.Status.Initialization; init.InfrastructureProvisioned == nil || !*init.InfrastructureProvisioned ||
		init.ControlPlaneInitialized == nil || !*init.ControlPlaneInitialized {
		t.Errorf("Cluster API's Cluster is not initialised: %+v", init)
	}
	machines := &clusterv1.MachineList{}
	must(t, shared.hub.List(ctx, machines, client.InNamespace(key.Namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: key.Name}))
	for _, m := range machines.Items {
		if !m.Status.NodeRef.IsDefined() || m.Status.Phase != string(clusterv1.MachinePhaseRunning) {
			t.Errorf("Machine %s is %s with Node %+v", m.Name, m.Status.Phase, m.Status.NodeRef)
		}
	}
}
