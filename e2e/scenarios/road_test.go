//go:build e2e

package scenarios

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/drover-dev/drover/e2e/hosts"
	"github.com/drover-dev/drover/e2e/lab"
	"github.com/drover-dev/drover/e2e/scenarios/suite"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
)

// TestRoad goes the whole road once: a Cluster of one custom machine with all roles, from kubectl apply to a pod that
// answers, and back until nothing of it is left in the hub.
func TestRoad(t *testing.T) { road(t, lab.K3s, "road") }

// road is for a cluster of a distribution, which has been released in the lab.
func road(t *testing.T, d lab.Distribution, name string) {
	ctx := t.Context()
	key := client.ObjectKey{Namespace: "fleet-default", Name: name}
	host := shared.NewHost(t, name+"1")
	shared.Settled(t, key.Namespace)
	bucket := makeBucket(t, key.Namespace)
	before := inventory(t)

	suite.Step(t, "the administrator's kubeconfig is the administrator's alone, and kubectl works with it", func(t *testing.T) {
		info, err := os.Stat(shared.HubKubeconfig())
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("admin.kubeconfig: %v, %v", info.Mode(), err)
		}
		if out := shared.RunKubectl(t, shared.HubKubeconfig(), "get", "namespaces"); !strings.Contains(out, key.Namespace) {
			t.Errorf("kubectl get namespaces says %q", out)
		}
	})
	var command string
	suite.Step(t, "an applied Cluster gets a registration command", func(t *testing.T) {
		suite.Must(t, shared.ApplyClusterVersion(ctx, shared.Hub, key, d.Version))
		useBucket(t, key, bucket)
		var err error
		command, _, err = shared.TokenCommand(ctx, shared.Hub, key, lab.AllRoles...)
		if err != nil {
			t.Fatal(err)
		}
	})
	suite.Step(t, "the command makes the machine a Machine, and it gets a plan", func(t *testing.T) {
		suite.Must(t, shared.Register(ctx, host, command))
		machine, err := shared.WaitMachine(ctx, shared.Hub, key)
		suite.Must(t, err)
		suite.Must(t, shared.WaitPlan(ctx, shared.Hub, machine))
	})
	suite.Step(t, "the Node is Ready, as the kubeconfig Secret shows", func(t *testing.T) {
		suite.Must(t, shared.WaitNodeReady(ctx, shared.Hub, key, 10*time.Minute))
	})
	suite.Step(t, "the Cluster is Ready", func(t *testing.T) {
		suite.Must(t, shared.WaitClusterReady(ctx, shared.Hub, key, 5*time.Minute))
		assertReady(t, key)
	})
	suite.Step(t, "a pod from an image of the installer image runs and answers", func(t *testing.T) {
		answer, err := shared.RunHello(ctx, shared.Hub, key, 5*time.Minute)
		suite.Must(t, err)
		t.Logf("it says %q", answer)
	})
	suite.Step(t, "the machine's credential opens its plan Secret and nothing else", func(t *testing.T) {
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
	suite.Step(t, "kubectl opens the cluster with the kubeconfig Secret", func(t *testing.T) {
		kubeconfig, err := shared.WriteClusterKubeconfig(ctx, shared.Hub, key)
		suite.Must(t, err)
		if out := shared.RunKubectl(t, kubeconfig, "get", "nodes"); !strings.Contains(out, host.Name) {
			t.Errorf("kubectl get nodes says %q", out)
		}
	})
	var onMachine, inBucket string
	suite.Step(t, "a snapshot is saved when the Cluster asks for one, and listed", func(t *testing.T) {
		writeData(t, key, "kept", "before the snapshot")
		onMachine, inBucket = saveSnapshot(t, host, key, bucket)
	})
	suite.Step(t, "the snapshot is restored when the Cluster asks for it, with the data of then", func(t *testing.T) {
		restoreSnapshot(t, key, onMachine, 1)
	})
	suite.Step(t, "the snapshot is restored from the bucket", func(t *testing.T) { restoreSnapshot(t, key, inBucket, 2) })
	suite.Step(t, "certificates are replaced when the Cluster asks for it, and their ends are known", func(t *testing.T) {
		rotateCertificates(t, host, key)
	})
	suite.Step(t, "they are replaced although the power is cut in the middle", func(t *testing.T) {
		rotateCertificatesInPowerCut(t, host, key)
	})
	suite.Step(t, "Secrets are encrypted when the Cluster asks for it, and the key is rotated", func(t *testing.T) {
		rotateEncryptionKeys(t, host, key)
	})
	suite.Step(t, "the tokens are rotated, and the server starts with the new one", func(t *testing.T) {
		rotateTokens(t, host, key)
	})
	suite.Step(t, "a snapshot from before is restored with the token of then", func(t *testing.T) {
		restoreSnapshot(t, key, inBucket, 3)
		hasToken(t, host, key)
	})
	suite.Step(t, "snapshots are deleted by the command, each alone", func(t *testing.T) {
		deleteSnapshots(t, host, key, bucket, onMachine, inBucket)
	})
	suite.Step(t, "the command can be run again, and makes no second machine", func(t *testing.T) {
		suite.Must(t, shared.Register(ctx, host, command))
		machines := &clusterv1.MachineList{}
		suite.Must(t, shared.Hub.List(ctx, machines, client.InNamespace(key.Namespace)))
		if len(machines.Items) != 1 {
			t.Errorf("%d Machines", len(machines.Items))
		}
		suite.Must(t, shared.WaitClusterReady(ctx, shared.Hub, key, 5*time.Minute))
	})
	suite.Step(t, "a hub that is started again finds the cluster Ready", func(t *testing.T) {
		suite.Must(t, shared.StopHub())
		suite.Must(t, shared.StartHub(ctx))
		suite.Must(t, shared.WaitClusterReady(ctx, shared.Hub, key, 5*time.Minute))
		assertReady(t, key)
	})
	suite.Step(t, "a machine that loses power comes back", func(t *testing.T) {
		suite.Must(t, host.Kill())
		suite.Must(t, host.Boot(ctx))
		_, err := shared.RunHello(ctx, shared.Hub, key, 5*time.Minute)
		suite.Must(t, err)
		suite.Must(t, shared.WaitClusterReady(ctx, shared.Hub, key, 5*time.Minute))
	})
	suite.Step(t, "a deleted Cluster takes every object and credential with it", func(t *testing.T) {
		cluster := &provisioningv1.Cluster{}
		suite.Must(t, shared.Hub.Get(ctx, key, cluster))
		suite.Must(t, shared.Hub.Delete(ctx, cluster))
		suite.Must(t, shared.WaitGone(ctx, shared.Hub, key, 5*time.Minute))
		var left []string
		err := shared.WaitFor(ctx, "nothing of the cluster is left", 2*time.Minute, func(context.Context) (bool, string) {
			left = added(before, inventory(t))
			return len(left) == 0, "left: " + strings.Join(left, ", ")
		})
		if err != nil {
			t.Errorf("left behind:\n%s", strings.Join(left, "\n"))
		}
	})
	suite.Step(t, "the machine's credential is worth nothing any more", func(t *testing.T) {
		suite.Must(t, shared.WaitFor(ctx, "the hub refuses the deleted machine", time.Minute, func(context.Context) (bool, string) {
			status := agentAccess(t, host, "")
			return status == 401, fmt.Sprintf("it answers with %d", status)
		}))
	})
}

func agentAccess(t *testing.T, host *hosts.Host, path string) int {
	t.Helper()
	status, err := shared.AgentAccess(t.Context(), host, path)
	suite.Must(t, err)
	return status
}

// assertReady checks what stands between the Cluster and its Node: Cluster API sees all of it as complete, too.
func assertReady(t *testing.T, key client.ObjectKey) {
	t.Helper()
	suite.Must(t, shared.WaitFor(t.Context(), "Cluster API sees all of it as complete", time.Minute, func(ctx context.Context) (bool, string) {
		capi := &clusterv1.Cluster{}
		if err := shared.Hub.Get(ctx, key, capi); err != nil {
			return false, err.Error()
		}
		if init := capi.Status.Initialization; init.InfrastructureProvisioned == nil || !*init.InfrastructureProvisioned ||
			init.ControlPlaneInitialized == nil || !*init.ControlPlaneInitialized {
			return false, fmt.Sprintf("its Cluster is not initialised: %+v", init)
		}
		machines := &clusterv1.MachineList{}
		if err := shared.Hub.List(ctx, machines, client.InNamespace(key.Namespace),
			client.MatchingLabels{clusterv1.ClusterNameLabel: key.Name}); err != nil {
			return false, err.Error()
		}
		for _, m := range machines.Items {
			if !m.Status.NodeRef.IsDefined() || m.Status.Phase != string(clusterv1.MachinePhaseRunning) {
				return false, fmt.Sprintf("Machine %s is %s with Node %+v", m.Name, m.Status.Phase, m.Status.NodeRef)
			}
		}
		return true, ""
	}))
}
