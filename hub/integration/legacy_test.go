package integration

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// TestGatewayLegacyMachine: machines that Rancher's install script has registered have no secret. They can register again with their ID
// from their known address, or once after an administrator has allowed it, but not with a registration token and the ID alone.
func TestGatewayLegacyMachine(t *testing.T) {
	t.Parallel()
	e := startGateway(t, apiServer(t))
	e.runControllers()
	id := strings.Repeat("0123456789abcdef", 4)[:63]
	name := types.NamespacedName{Namespace: e.namespace, Name: rkev1.MachineRequestName(id)}
	patch := func(object client.Object, status bool, patch string) {
		t.Helper()
		object.SetNamespace(name.Namespace)
		object.SetName(name.Name)
		var err error
		if raw := client.RawPatch(types.MergePatchType, []byte(patch)); status {
			err = e.client.Status().Patch(t.Context(), object, raw)
		} else {
			err = e.client.Patch(t.Context(), object, raw)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	register := func(what string, want int, secret, text string) (body string) {
		t.Helper()
		code, body := e.register(e.token, id, secret)
		if code != want || !strings.Contains(body, text) {
			t.Fatalf("%s: %d %s", what, code, body)
		}
		return body
	}
	first := register("the first time", http.StatusOK, "", "kubeConfig")
	patch(&rkev1.RKEBootstrap{}, false, fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, rkev1.MachineIDLabel, rkev1.MachineIDLabelValue(id)))
	if again := register("an answer that was lost", http.StatusOK, "", ""); again != first {
		t.Errorf("the machine gets another connection: %s", again)
	}
	nodeAt := func(address string) {
		t.Helper()
		patch(&clusterv1.Machine{}, true,
			fmt.Sprintf(`{"status":{"nodeRef":{"name":"node"},"addresses":[{"type":"InternalIP","address":%q}]}}`, address))
	}
	nodeAt("192.0.2.7")
	register("from elsewhere", http.StatusUnauthorized, "", rkev1.RegisterFromAnnotation+"=127.0.0.1")
	register("from elsewhere with a secret of its own", http.StatusUnauthorized, machineSecret, "registered already")
	nodeAt("127.0.0.1")
	if again := register("from its Node's address", http.StatusOK, "", ""); again != first {
		t.Errorf("the machine gets another connection: %s", again)
	}
	patch(&rkev1.RKEBootstrap{}, false, fmt.Sprintf(`{"metadata":{"labels":{%q:"true"}}}`, rkev1.EtcdRoleLabel))
	register("a token for any role", http.StatusOK, "", "")
	unbound := e.token
	var clusters managementv3.ClusterList
	if err := e.client.List(t.Context(), &clusters, client.MatchingLabels{rkev1.OwnerClusterNamespaceLabel: e.namespace}); err != nil ||
		len(clusters.Items) != 1 {
		t.Fatalf("%d clusters, %v", len(clusters.Items), err)
	}
	e.createToken(clusters.Items[0].Name, managementv3.WorkerRole)
	register("a token for workers", http.StatusForbidden, "", "not for machines with the role Etcd")
	e.token = unbound
	patch(&rkev1.RKEBootstrap{}, false, fmt.Sprintf(`{"metadata":{"annotations":{%q:"hash"}}}`, rkev1.MachineSecretHashAnnotation))
	register("a machine that has a secret", http.StatusUnauthorized, "", "registered already")

	approve := func(address string) {
		t.Helper()
		patch(&clusterv1.Machine{}, false, fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, rkev1.RegisterFromAnnotation, address))
	}
	approve("192.0.2.7")
	register("approved for another address", http.StatusUnauthorized, "", "registered already")
	approve("127.0.0.1")
	register("approved", http.StatusOK, machineSecret, "kubeConfig")
	register("it has a secret now", http.StatusOK, machineSecret, "kubeConfig")
	register("the approval was for once", http.StatusUnauthorized, "", "registered already")
}
