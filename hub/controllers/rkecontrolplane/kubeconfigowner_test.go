package rkecontrolplane

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	"github.com/drover-dev/drover/hub/plan/reasons"
)

// TestOwnerOfKubeconfig: the kubeconfig Secret of an imported Cluster of the same name is not the control plane's, which says so. One that
// Rancher has created for the Cluster that owns the Cluster API Cluster is used, and so is one without an owner. None is changed.
func TestOwnerOfKubeconfig(t *testing.T) {
	owner := []metav1.OwnerReference{{APIVersion: provisioningv1.GroupVersion.String(), Kind: "Cluster", Name: "c", UID: "p"}}
	adopted := provisioningv1.ClusterSpec{RKEConfig: &provisioningv1.RKEConfig{}}
	for _, tt := range []struct {
		name            string
		spec            provisioningv1.ClusterSpec
		secret, cluster []metav1.OwnerReference
		refused         bool
	}{
		{name: "of an imported Cluster", secret: owner, refused: true},
		{name: "of an adopted Cluster", spec: adopted, secret: owner, cluster: owner},
		{name: "of nobody"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newKubeconfigWorld(t)
			stored := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "c-kubeconfig", OwnerReferences: tt.secret},
				Type: clusterv1.ClusterSecretType, Data: map[string][]byte{"value": []byte(tunnelKubeconfig)}}
			cluster := &provisioningv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "c", UID: "p"}, Spec: tt.spec}
			for _, object := range []client.Object{cluster, stored} {
				if err := w.api.Create(t.Context(), object); err != nil {
					t.Fatal(err)
				}
			}
			s := w.scope()
			s.cluster.OwnerReferences = tt.cluster
			if err := w.r.ensureKubeconfig(t.Context(), s); err != nil {
				t.Fatal(err)
			}
			if got := s.kubeconfig; (got.Reason == reasons.KubeconfigRefused) != tt.refused ||
				strings.Contains(got.Message, "Secret c-kubeconfig names Cluster c of provisioning.cattle.io") != tt.refused {
				t.Errorf("refused for %q: %s", got.Reason, got.Message)
			}
			after := &corev1.Secret{}
			if err := w.api.Get(t.Context(), client.ObjectKeyFromObject(stored), after); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(stored, after); diff != "" {
				t.Errorf("the Secret was changed (-want +got):\n%s", diff)
			}
		})
	}
}

const tunnelKubeconfig = `{"apiVersion": "v1", "kind": "Config", "current-context": "x",
	"clusters": [{"name": "x", "cluster": {"server": "https://hub/k8s/clusters/c-m-imported"}}],
	"users": [{"name": "x", "user": {"token": "hush"}}],
	"contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}]}`

// TestKubeconfigOfRancher: the kubeconfig that Rancher has made leads to Rancher, and is replaced as soon as the cluster's agent is there.
func TestKubeconfigOfRancher(t *testing.T) {
	owner := []metav1.OwnerReference{{APIVersion: provisioningv1.GroupVersion.String(), Kind: "Cluster", Name: "c", UID: "p"}}
	config := strings.NewReplacer("https://hub", "https://10.43.0.9", "c-m-imported", "c-m-a").Replace(tunnelKubeconfig)
	for _, tt := range []struct {
		name, token string
		agent       bool
		replaced    bool
	}{
		{name: "with an agent", token: "hush", agent: true, replaced: true},
		{name: "without", token: "hush"},
		{name: "of another program", agent: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newKubeconfigWorld(t)
			w.agent, w.authority = tt.agent, nil
			stored := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "c-kubeconfig", UID: "s", OwnerReferences: owner},
				Type: corev1.SecretTypeOpaque, Data: map[string][]byte{"value": []byte(config), "token": []byte(tt.token)}}
			cluster := &provisioningv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "c", UID: "p"},
				Spec: provisioningv1.ClusterSpec{RKEConfig: &provisioningv1.RKEConfig{}}}
			for _, object := range []client.Object{cluster, stored} {
				if err := w.api.Create(t.Context(), object); err != nil {
					t.Fatal(err)
				}
			}
			s := w.scope()
			s.cluster.OwnerReferences = owner
			if err := w.r.ensureKubeconfig(t.Context(), s); err != nil {
				t.Fatal(err)
			}
			after := &corev1.Secret{}
			if err := w.api.Get(t.Context(), client.ObjectKeyFromObject(stored), after); err != nil {
				t.Fatal(err)
			}
			if got := metav1.IsControlledBy(after, s.controlPlane); got != tt.replaced {
				t.Errorf("the Secret has the owners %+v", after.OwnerReferences)
			}
			if got := w.config().Host; tt.replaced && got != throughTunnel {
				t.Errorf("it leads to %s", got)
			}
			if says := s.kubeconfig.Reason != ""; says != (!tt.replaced && tt.token != "") {
				t.Errorf("KubeconfigReady says %+v", s.kubeconfig)
			}
		})
	}
}
