package integration

import (
	"errors"
	"fmt"
	"net/http"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// TestGatewayProvisioning registers a machine with the gateway and the hub's controllers, from the applied Cluster to the plan Secret that
// the machine reads, and then deletes the Cluster.
func TestGatewayProvisioning(t *testing.T) {
	t.Parallel()
	e := newGateway(t, apiServer(t))
	e.namespace = newNamespace(t)
	cluster := newCluster(e.namespace, "road")
	e.create(cluster)
	eventually(t, "the management Cluster", func() error {
		if err := e.client.Get(t.Context(), client.ObjectKeyFromObject(cluster), cluster); err != nil {
			return err
		}
		if cluster.Status.ClusterName == "" {
			return errors.New("it has no name")
		}
		return nil
	})
	e.createToken(cluster.Status.ClusterName)
	e.serve()

	headers := map[string]string{
		"Authorization": "Bearer " + e.token, "X-Cattle-Id": "road-1", "X-Cattle-Machine-Secret": machineSecret,
		"X-Cattle-Role-Etcd": "true", "X-Cattle-Role-Control-Plane": "true", "X-Cattle-Role-Worker": "true",
		"X-Cattle-Node-Name": "road-node", "X-Cattle-Detected-Address": "192.0.2.10", "X-Cattle-Labels": "cattle.io/os=linux,team=a",
		"X-Cattle-Taints": "k=v:NoSchedule",
	}
	code, first := e.connect(headers)
	if code != http.StatusOK {
		t.Fatalf("registering: %d %s", code, first)
	}
	name := rkev1.MachineRequestName("road-1")
	machine, bootstrap := &clusterv1.Machine{}, &rkev1.RKEBootstrap{}
	for _, object := range []client.Object{machine, bootstrap} {
		if err := e.client.Get(t.Context(), types.NamespacedName{Namespace: e.namespace, Name: name}, object); err != nil {
			t.Fatal(err)
		}
	}
	if machine.Labels[rkev1.EtcdRoleLabel] != "true" || bootstrap.Annotations[rkev1.DetectedAddressAnnotation] != "192.0.2.10" ||
		bootstrap.Annotations[rkev1.LabelsAnnotation] != `{"cattle.io/os":"linux","team":"a"}` || machine.Labels["team"] != "a" {
		t.Errorf("Machine %v, RKEBootstrap %v", machine.Labels, bootstrap.Annotations)
	}
	if code, again := e.get("/v3/connect/agent", headers); code != http.StatusOK || again != first {
		t.Errorf("again: %d %s", code, again)
	}
	headers["X-Cattle-Machine-Secret"] = "another secret, long enough"
	if code, body := e.get("/v3/connect/agent", headers); code != http.StatusUnauthorized {
		t.Errorf("takeover: %d %s", code, body)
	}

	config, namespace, planName := machineConfig(t, first)
	read := func() (int, string) {
		return e.get("/api/v1/namespaces/"+namespace+"/secrets/"+planName, map[string]string{"Authorization": "Bearer " + config.BearerToken})
	}
	eventually(t, "the plan Secret", func() error {
		if code, body := read(); code != http.StatusOK {
			return fmt.Errorf("%d %s", code, body)
		}
		return nil
	})
	e.awaitSigned(first, types.NamespacedName{Namespace: namespace, Name: planName})
	if err := e.client.Delete(t.Context(), machine); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the credentials of a deleted machine to end", func() error {
		if code, body := read(); code != http.StatusUnauthorized {
			return fmt.Errorf("%d %s", code, body)
		}
		return nil
	})
}

// connect sends a registration as a machine does, which comes again where the hub asks for that: on a busy machine the controllers may need
// longer than a registration waits for them.
func (e *gatewayEnv) connect(headers map[string]string) (code int, body string) {
	e.t.Helper()
	eventually(e.t, "an answer that is not for later", func() error {
		if code, body = e.get("/v3/connect/agent", headers); code == http.StatusServiceUnavailable {
			return &unexpected{code, body}
		}
		return nil
	})
	return code, body
}
