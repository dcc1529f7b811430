package clusters

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/testenv"
	"github.com/drover-dev/drover/plans"
)

// TestChosenEndpoint: a Cluster for which nobody has set an endpoint gets that of a machine, and is Provisioned, whoever provides its
// infrastructure; no plan changes for it. A user's own replaces it in plans and in the kubeconfig.
func TestChosenEndpoint(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		infra clusterv1.ContractVersionedObjectReference
	}{
		{name: "the hub's infrastructure", infra: ref(rkev1.GroupVersion.Group, "RKECluster", "c")},
		{name: "another provider's infrastructure", infra: ref(infraGroup, "PlaneCluster", "c")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorldWithoutEndpoint(t, tt.infra)
			server, worker := w.machine("server", "etcd", "control-plane"), w.machine("worker", "worker")
			server.comesUp("10.9.0.1")
			if got := server.config()["tls-san"]; got != nil {
				t.Errorf("the first plan has tls-san %v", got)
			}
			server.applies()
			w.isProvisionedAt("10.9.0.1")
			w.kubeconfigServer("https://10.9.0.1:6443")

			before := server.secret().Data[plans.KeyPlan]
			worker.comesUp("10.9.0.2")
			worker.config()
			if diff := cmp.Diff(string(before), string(server.secret().Data[plans.KeyPlan])); diff != "" {
				t.Errorf("the endpoint changed the plan:\n%s", diff)
			}

			w.setEndpoint("lb.example.com")
			w.kubeconfigServer("https://lb.example.com:6443")
			if diff := cmp.Diff([]any{"lb.example.com"}, server.config()["tls-san"]); diff != "" {
				t.Errorf("tls-san (-want +got):\n%s", diff)
			}
			w.isProvisionedAt("10.9.0.1")
		})
	}
}

// newWorldWithoutEndpoint makes a cluster whose infrastructure is there and names no endpoint.
func newWorldWithoutEndpoint(t *testing.T, infraRef clusterv1.ContractVersionedObjectReference) *world {
	t.Helper()
	w := &world{t: t, namespace: env.Namespace(t)}
	meta := metav1.ObjectMeta{Namespace: w.namespace, Name: "c"}
	w.cluster = &clusterv1.Cluster{ObjectMeta: meta, Spec: clusterv1.ClusterSpec{
		ControlPlaneRef: ref(rkev1.GroupVersion.Group, "RKEControlPlane", "c"), InfrastructureRef: infraRef,
	}}
	w.plane = &rkev1.RKEControlPlane{ObjectMeta: meta, Spec: rkev1.RKEControlPlaneSpec{KubernetesVersion: "v1.36.3+k3s1"}}
	var foreign *unstructured.Unstructured
	if infraRef.Kind == "RKECluster" {
		env.Create(t, &rkev1.RKECluster{ObjectMeta: meta})
	} else {
		foreign = infra(infraRef.Kind, w.namespace, "c", map[string]any{})
		env.Create(t, foreign)
	}
	env.Create(t, w.plane, w.cluster)
	if foreign != nil {
		w.provisioned(foreign, nil)
	}
	return w
}

// isProvisionedAt waits until the Cluster has an endpoint and, with it, its phase.
func (w *world) isProvisionedAt(host string) {
	w.t.Helper()
	testenv.Until(w.t, "the Cluster to be Provisioned", func() error {
		env.Get(w.t, w.namespace, "c", w.cluster)
		want := clusterv1.APIEndpoint{Host: host, Port: 6443}
		if e := w.cluster.Spec.ControlPlaneEndpoint; e != want || w.cluster.Status.Phase != string(clusterv1.ClusterPhaseProvisioned) {
			return fmt.Errorf("it is %s at %s", w.cluster.Status.Phase, e.String())
		}
		return nil
	})
}

// setEndpoint is what a user does who has a load balancer.
func (w *world) setEndpoint(host string) {
	w.t.Helper()
	endpoint := rkev1.APIEndpoint{Host: host, Port: 6443}
	if w.cluster.Spec.InfrastructureRef.Kind != "RKECluster" {
		env.Get(w.t, w.namespace, "c", w.plane)
		testenv.Change(w.t, env, w.plane, func(c *rkev1.RKEControlPlane) { c.Spec.ControlPlaneEndpoint = endpoint })
		return
	}
	infra := &rkev1.RKECluster{}
	env.Get(w.t, w.namespace, "c", infra)
	testenv.Change(w.t, env, infra, func(c *rkev1.RKECluster) { c.Spec.ControlPlaneEndpoint = endpoint })
}
