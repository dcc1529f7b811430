package cli

import (
	"context"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// TestDirectContexts: the kubeconfig of a Cluster does not lead to a cluster that was made for something else under its name, which would
// get the user's token. Users of a cluster that was written for Cluster API need no rights on the other kind.
func TestDirectContexts(t *testing.T) {
	named := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "ns", Name: name} }
	objects := []client.Object{&rkev1.RKEControlPlane{ObjectMeta: named("plane"), Spec: rkev1.RKEControlPlaneSpec{
		LocalClusterAuthEndpoint: rkev1.LocalClusterAuthEndpoint{Enabled: true, FQDN: "api.example.com", CACerts: "pem"}}}}
	for name, owners := range map[string][]metav1.OwnerReference{
		"made":  {{APIVersion: provisioningv1.GroupVersion.String(), Kind: "Cluster", Name: "made", UID: "u"}},
		"taken": nil, "native": nil, "forbidden": nil,
	} {
		capi := &clusterv1.Cluster{ObjectMeta: named(name), Spec: clusterv1.ClusterSpec{
			ControlPlaneRef: clusterv1.ContractVersionedObjectReference{APIGroup: rkev1.GroupVersion.Group, Kind: "RKEControlPlane",
				Name: "plane"}}}
		capi.OwnerReferences = owners
		objects = append(objects, capi)
		if name != "native" {
			objects = append(objects, &provisioningv1.Cluster{ObjectMeta: named(name), Spec: provisioningv1.ClusterSpec{
				LocalClusterAuthEndpoint: rkev1.LocalClusterAuthEndpoint{Enabled: true}}})
		}
	}
	c := interceptor.NewClient(fakeAPI(t, objects...), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if _, is := obj.(*provisioningv1.Cluster); is && key.Name == "forbidden" {
				return apierrors.NewForbidden(schema.GroupResource{Resource: "clusters"}, key.Name, nil)
			}
			return c.Get(ctx, key, obj, opts...)
		},
	})
	for name, want := range map[string]int{"made": 1, "native": 1, "forbidden": 1, "taken": 0} {
		config := clientcmdapi.NewConfig()
		if err := addDirect(t.Context(), c, client.ObjectKey{Namespace: "ns", Name: name}, config); err != nil || len(config.Contexts) != want {
			t.Errorf("%s: the contexts are %v, %v", name, config.Contexts, err)
		}
	}
}

// TestNoDirectContext: users of a Cluster without an authorized endpoint need no right to the objects of Cluster API.
func TestNoDirectContext(t *testing.T) {
	for _, enabled := range []bool{false, true} {
		cluster := &provisioningv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "one"}}
		cluster.Spec.LocalClusterAuthEndpoint.Enabled = enabled
		c := interceptor.NewClient(fakeAPI(t, cluster), interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
				if _, is := obj.(*provisioningv1.Cluster); !is {
					return apierrors.NewForbidden(schema.GroupResource{Resource: "clusters"}, key.Name, nil)
				}
				return c.Get(ctx, key, obj, opts...)
			},
		})
		err := addDirect(t.Context(), c, client.ObjectKeyFromObject(cluster), clientcmdapi.NewConfig())
		if apierrors.IsForbidden(err) != enabled {
			t.Errorf("enabled is %v: %v", enabled, err)
		}
	}
}

// TestDirectContextOfURL: a URL in the place of a name gives no context that kubectl could not use. An IPv6 address may have brackets.
func TestDirectContextOfURL(t *testing.T) {
	meta := metav1.ObjectMeta{Namespace: "ns", Name: "one"}
	for fqdn, want := range map[string]string{
		"api.example.com": "https://api.example.com", "api.example.com:6443": "https://api.example.com:6443", "https://api.example.com": "",
		"2001:db8::9": "https://[2001:db8::9]", "[2001:db8::9]": "https://[2001:db8::9]",
		"[2001:db8::9]:6443": "https://[2001:db8::9]:6443",
	} {
		c := fakeAPI(t, &clusterv1.Cluster{ObjectMeta: meta, Spec: clusterv1.ClusterSpec{
			ControlPlaneRef: clusterv1.ContractVersionedObjectReference{APIGroup: rkev1.GroupVersion.Group, Kind: "RKEControlPlane",
				Name: "one"}}},
			&rkev1.RKEControlPlane{ObjectMeta: meta, Spec: rkev1.RKEControlPlaneSpec{
				LocalClusterAuthEndpoint: rkev1.LocalClusterAuthEndpoint{Enabled: true, FQDN: fqdn, CACerts: "pem"}}})
		config := clientcmdapi.NewConfig()
		err := addDirect(t.Context(), c, client.ObjectKey{Namespace: "ns", Name: "one"}, config)
		if want == "" {
			if err == nil || len(config.Contexts) > 0 {
				t.Errorf("%s: the contexts are %v, %v", fqdn, config.Contexts, err)
			}
			continue
		}
		if cluster := config.Clusters["ns/one@"+fqdn]; err != nil || cluster == nil || cluster.Server != want {
			t.Errorf("%s: the cluster is %+v, %v", fqdn, cluster, err)
		}
	}
}
