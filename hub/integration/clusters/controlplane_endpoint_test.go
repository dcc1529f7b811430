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

// TestDefaultEndpoint: a Cluster without an endpoint gets that of a machine and becomes Provisioned, with any infrastructure provider; no
// plan changes. An endpoint that a user sets replaces it in plans and in the kubeconfig.
func TestDefaultEndpoint(t *testing.T) {
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
			w := newClusterWithoutEndpoint(t, tt.infra)
			server, worker := w.machine("server", "etcd", "control-plane"), w.machine("worker", "worker")
			server.reportReady("10.9.0.1")
			if got := server.awaitConfig()["tls-san"]; got != nil {
				t.Errorf("the first plan has tls-san %v", got)
			}
			server.reportApplied()
			w.awaitEndpoint("10.9.0.1")
			w.awaitKubeconfigServer("https://10.9.0.1:6443")

			before := server.secret().Data[plans.KeyPlan]
			worker.reportReady("10.9.0.2")
			worker.awaitConfig()
			if diff := cmp.Diff(string(before), string(server.secret().Data[plans.KeyPlan])); diff != "" {
				t.Errorf("the endpoint changed the plan:\n%s", diff)
			}

			w.setEndpoint("lb.example.com")
			w.awaitKubeconfigServer("https://lb.example.com:6443")
			if diff := cmp.Diff([]any{"lb.example.com"}, server.awaitConfig()["tls-san"]); diff != "" {
				t.Errorf("tls-san (-want +got):\n%s", diff)
			}
			w.awaitEndpoint("10.9.0.1")
		})
	}
}

// newClusterWithoutEndpoint creates a cluster whose infrastructure is provisioned and has no endpoint.
func newClusterWithoutEndpoint(t *testing.T, infraRef clusterv1.ContractVersionedObjectReference) *controlPlaneCluster {
	t.Helper()
	w := &controlPlaneCluster{t: t, namespace: env.Namespace(t)}
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
		w.setProvisioned(foreign, nil)
	}
	return w
}

// awaitEndpoint waits until the Cluster has an endpoint and the phase Provisioned.
func (w *controlPlaneCluster) awaitEndpoint(host string) {
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

// setEndpoint sets the endpoint as a user with a load balancer does.
func (w *controlPlaneCluster) setEndpoint(host string) {
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
