package rkecontrolplane

import (
	"cmp"
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/testenv/fakeclient"
)

// TestSkipPreflightChecks: MachineSets create the machines of a control plane with spec.version, although it reports no version before it
// has machines.
func TestSkipPreflightChecks(t *testing.T) {
	scheme := fakeclient.Scheme(t, clusterv1.AddToScheme, rkev1.AddToScheme, corev1.AddToScheme, operationv1.AddToScheme)
	for name, tc := range map[string]struct {
		field           string // the one with the version; spec.version where empty
		has             string // the annotation before
		kind, ofCluster string // of the bootstrap template and of the MachineDeployment, where not the hub's and "c"
		want            string
	}{
		"a new MachineDeployment":       {want: "ControlPlaneIsStable"},
		"spec.kubernetesVersion alone":  {field: "kubernetesVersion"},
		"a user skips another check":    {has: "KubernetesVersionSkew", want: "KubernetesVersionSkew,ControlPlaneIsStable"},
		"a user skips all":              {has: "All", want: "All"},
		"done":                          {has: "KubeadmVersionSkew, ControlPlaneIsStable", want: "KubeadmVersionSkew, ControlPlaneIsStable"},
		"of another bootstrap provider": {kind: "KubeadmConfigTemplate"},
		"of another cluster":            {ofCluster: "other"},
	} {
		d := pool(clusterv1.MachineControlPlaneLabel, 3)
		d.Namespace, d.Name, d.Labels = "fleet", "servers", map[string]string{clusterv1.ClusterNameLabel: "c"}
		d.Spec.ClusterName = cmp.Or(tc.ofCluster, "c")
		d.Spec.Template.Spec.Bootstrap.ConfigRef = clusterv1.ContractVersionedObjectReference{APIGroup: rkev1.GroupVersion.Group,
			Kind: cmp.Or(tc.kind, "RKEBootstrapTemplate"), Name: "servers"}
		if tc.has != "" {
			d.Annotations = map[string]string{clusterv1.MachineSetSkipPreflightChecksAnnotation: tc.has}
		}
		lists := 0
		count := interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if _, is := list.(*clusterv1.MachineDeploymentList); is {
				lists++
			}
			return c.List(ctx, list, opts...)
		}}
		c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(&d).WithInterceptorFuncs(count).Build()
		s := &scope{controlPlane: &rkev1.RKEControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "c"}},
			cluster: &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "c"}}}
		if tc.field == "" {
			s.controlPlane.Spec.Version = "v1.36.3+k3s1"
		} else {
			s.controlPlane.Spec.KubernetesVersion = "v1.36.3+k3s1"
		}
		// The infrastructure of the cluster is not provisioned yet.
		if err := (&Reconciler{Client: c, Cache: c, Now: time.Now}).reconcileNormal(t.Context(), s); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if lists != 1 {
			t.Errorf("%s: the MachineDeployments are listed %d times", name, lists)
		}
		after := &clusterv1.MachineDeployment{}
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(&d), after); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := after.Annotations[clusterv1.MachineSetSkipPreflightChecksAnnotation]; got != tc.want {
			t.Errorf("%s: the annotation is %q, want %q", name, got, tc.want)
		}
	}
}
