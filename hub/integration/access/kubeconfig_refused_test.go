package access

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/controllers/capicluster"
	"github.com/drover-dev/drover/hub/controllers/rkecontrolplane"
	"github.com/drover-dev/drover/hub/testenv"
)

// tenantKubeconfig is a kubeconfig Secret as a tenant may write it, without labels.
func tenantKubeconfig(t *testing.T, namespace, cluster, server string, user *clientcmdapi.AuthInfo) *corev1.Secret {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["x"] = &clientcmdapi.Cluster{Server: server}
	config.AuthInfos["x"] = user
	config.Contexts["x"] = &clientcmdapi.Context{Cluster: "x", AuthInfo: "x"}
	config.CurrentContext = "x"
	raw, err := clientcmd.Write(*config)
	if err != nil {
		t.Fatal(err)
	}
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: cluster + "-kubeconfig"},
		Type:       clusterv1.ClusterSecretType, Data: map[string][]byte{"value": raw},
	}
}

// TestTenantKubeconfig: with a kubeconfig of a tenant the hub reads none of its own files, and reports on the tenant's object what it
// refuses.
func TestTenantKubeconfig(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	thief := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	t.Cleanup(thief.Close)
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("the hub's own"), 0o600); err != nil {
		t.Fatal(err)
	}
	const message = `kubeconfig Secret theirs-kubeconfig: users["x"].user.tokenFile names a file, which the hub would read from its own disk: put the content into token`

	// A cluster without the hub's kinds, which Cluster API connects to once its infrastructure is provisioned.
	namespace := env.Namespace(t)
	cluster := &clusterv1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "theirs"},
		Spec: clusterv1.ClusterSpec{
			ControlPlaneRef: clusterv1.ContractVersionedObjectReference{APIGroup: "controlplane.example.com", Kind: "OtherControlPlane",
				Name: "theirs"},
			ControlPlaneEndpoint: clusterv1.APIEndpoint{Host: "192.0.2.1", Port: 6443},
		},
	}
	env.Create(t, cluster, tenantKubeconfig(t, namespace, "theirs", "https://"+thief.Listener.Addr().String(), &clientcmdapi.AuthInfo{TokenFile: file}))
	testenv.Until(t, "Cluster API to take the infrastructure for provisioned", func() error {
		env.Get(t, namespace, "theirs", cluster)
		cluster.Status.Initialization.InfrastructureProvisioned = ptr.To(true)
		return env.Client.Status().Update(t.Context(), cluster)
	})
	if got := testenv.Condition(t, env, cluster, capicluster.AcceptedCondition, metav1.ConditionFalse,
		capicluster.RefusedReason); got != message {
		t.Errorf("the Cluster says %q", got)
	}
	if n := asked.Load(); n > 0 {
		t.Errorf("the hub has asked %d times", n)
	}

	// What is taken instead lets the condition go.
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "theirs-kubeconfig"}}
	testenv.Change(t, env, secret, func(s *corev1.Secret) {
		s.Data = tenantKubeconfig(t, namespace, "theirs", "https://192.0.2.1:6443", &clientcmdapi.AuthInfo{Token: "theirs"}).Data
	})
	testenv.Until(t, "the condition to go", func() error {
		env.Get(t, namespace, "theirs", cluster)
		if c := conditions.Get(cluster, capicluster.AcceptedCondition); c != nil {
			return fmt.Errorf("it is %+v", *c)
		}
		return nil
	})

	// A Cluster of the hub, whose Secret a tenant has written first.
	r := env.NewCluster(t, "ours", nil)
	env.Create(t, tenantKubeconfig(t, r.Cluster.Namespace, "ours", "https://192.0.2.1:6443",
		&clientcmdapi.AuthInfo{ClientKey: file, ClientCertificate: file}))
	r.Register("ours-one", "10.0.0.1", "etcd", "control-plane", "worker")
	r.AwaitCondition(r.ControlPlane(), rkecontrolplane.KubeconfigReadyCondition, metav1.ConditionFalse, "KubeconfigRefused",
		`kubeconfig Secret ours-kubeconfig: users["x"].user.client-certificate names a file, which the hub would read from its own disk: put the content into client-certificate-data`)
}

// TestKubeconfigOfImportedCluster: a cluster that gets the name of an imported one does not take its kubeconfig Secret. The Cluster API
// Cluster and the RKEControlPlane say whose it is, until it is gone.
func TestKubeconfigOfImportedCluster(t *testing.T) {
	t.Parallel()
	imported, management := newImported(t)
	env.NewAgent(t, management)
	key := client.ObjectKeyFromObject(imported)
	testenv.Until(t, "the kubeconfig of the imported cluster", func() error {
		_, _, err := secretConfig(t, key.Namespace, key.Name)
		return err
	})
	meta := metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}
	ref := func(kind string) clusterv1.ContractVersionedObjectReference {
		return clusterv1.ContractVersionedObjectReference{APIGroup: rkev1.GroupVersion.Group, Kind: kind, Name: key.Name}
	}
	cluster := &clusterv1.Cluster{ObjectMeta: meta,
		Spec: clusterv1.ClusterSpec{ControlPlaneRef: ref("RKEControlPlane"), InfrastructureRef: ref("RKECluster")}}
	plane := &rkev1.RKEControlPlane{ObjectMeta: meta, Spec: rkev1.RKEControlPlaneSpec{KubernetesVersion: "v1.36.3+k3s1"}}
	env.Create(t, &rkev1.RKECluster{ObjectMeta: meta}, plane, cluster)
	const want = "metadata.ownerReferences of kubeconfig Secret imported-kubeconfig names Cluster imported of provisioning.cattle.io, which " +
		"does not belong to Cluster API Cluster imported; give one of the two another name, or delete the Secret if its owner no longer exists"
	for _, message := range []string{
		testenv.Condition(t, env, cluster, capicluster.AcceptedCondition, metav1.ConditionFalse, capicluster.RefusedReason),
		testenv.Condition(t, env, plane, rkecontrolplane.KubeconfigReadyCondition, metav1.ConditionFalse, capicluster.RefusedReason),
	} {
		if message != want {
			t.Errorf("a condition says %q", message)
		}
	}

	env.Delete(t, imported)
	testenv.Until(t, "the conditions to go", func() error {
		env.Get(t, key.Namespace, key.Name, cluster)
		env.Get(t, key.Namespace, key.Name, plane)
		if conditions.Has(cluster, capicluster.AcceptedCondition) ||
			conditions.GetReason(plane, rkecontrolplane.KubeconfigReadyCondition) == capicluster.RefusedReason {
			return fmt.Errorf("the Cluster has %+v, the RKEControlPlane %+v", cluster.Status.Conditions, plane.Status.Conditions)
		}
		return nil
	})
}
