package cluster

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/testenv/fakeclient"
)

// TestKnownStatus: what cannot be read is left as it was known, and not reported as missing.
func TestKnownStatus(t *testing.T) {
	known := testCluster()
	known.Status = provisioningv1.ClusterStatus{Ready: true, ClusterName: "c-m-abcdefgh", FleetWorkspaceName: "fleet-default",
		ClientSecretName: "one-kubeconfig", ObservedGeneration: 1}
	for _, conditionType := range ownedConditions[:6] {
		known.Status.Conditions = append(known.Status.Conditions, metav1.Condition{Type: conditionType, Status: metav1.ConditionTrue,
			Reason: "Known"})
	}
	known.Generation = 2
	known.Spec.RKEConfig.MachinePools = []provisioningv1.RKEMachinePool{*poolSpec("a")}
	s := &scope{cluster: known.DeepCopy(), unread: unread{spec: true, pools: true, controlPlane: true, kubeconfig: true}}
	setStatus(s)
	if diff := cmp.Diff(known.Status, s.cluster.Status); diff != "" {
		t.Errorf("(-known +reported):\n%s", diff)
	}
}

// TestUncheckedSpec: as long as the sources of its files cannot be looked at, a spec is not handed on.
func TestUncheckedSpec(t *testing.T) {
	scheme := fakeclient.Scheme(t, provisioningv1.AddToScheme, rkev1.AddToScheme, clusterv1.AddToScheme,
		managementv3.AddToScheme, metav1.AddMetaToScheme)
	away := errors.New("the API server is unreachable")
	c := fake.NewClientBuilder().WithScheme(scheme).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if _, metadata := obj.(*metav1.PartialObjectMetadata); metadata {
				return away
			}
			return c.Get(ctx, key, obj, opts...)
		},
		Apply: func(_ context.Context, _ client.WithWatch, obj runtime.ApplyConfiguration, _ ...client.ApplyOption) error {
			t.Errorf("wrote %+v", obj)
			return nil
		},
	}).Build()
	cluster := testCluster()
	cluster.Spec.RKEConfig.MachineSelectorFiles = []rkev1.RKEProvisioningFiles{{FileSources: []rkev1.ProvisioningFileSource{
		{Secret: &rkev1.K8sObjectFileSource{Name: "someone-elses"}}}}}
	r := &Reconciler{Client: c}
	s := &scope{cluster: cluster, management: &managementv3.Cluster{}}
	if err := s.run(t.Context(), r.reconcileSpec, r.reconcileClusterAPI); !errors.Is(err, away) {
		t.Errorf("the error is %v", err)
	}
	if s.passedOn || !s.unread.spec {
		t.Errorf("handed on %v, unread %+v", s.passedOn, s.unread)
	}
}
