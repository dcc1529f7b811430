package drivermachine

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/nodedriver"
	"github.com/drover-dev/drover/hub/testenv/fakeclient"
)

// TestReportAddresses: the addresses of a machine that has been created are on its RKEBootstrap, and on no other that it names.
func TestReportAddresses(t *testing.T) {
	for owner, want := range map[types.UID]string{"machine": `{"internal":["10.0.0.1"],"external":["203.0.113.1"]}`, "another": ""} {
		bootstrap := &rkev1.RKEBootstrap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "one", OwnerReferences: []metav1.OwnerReference{
			{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: "one", UID: owner},
		}}}
		machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "one", UID: "machine"}}
		machine.Spec.Bootstrap.ConfigRef = clusterv1.ContractVersionedObjectReference{APIGroup: rkev1.GroupVersion.Group, Kind: "RKEBootstrap",
			Name: "one"}
		writes := 0
		m := &machines{Client: fake.NewClientBuilder().WithScheme(fakeclient.Scheme(t, rkev1.AddToScheme)).WithObjects(bootstrap).
			WithInterceptorFuncs(interceptor.Funcs{
				Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
					writes++
					return c.Patch(ctx, o, p, opts...)
				},
			}).Build()}
		s := &scope{machine: machine, stored: &stored{}}
		s.stored.progress.Addresses = []nodedriver.Address{{Internal: true, Address: "10.0.0.1"}, {Address: "203.0.113.1"}}
		for range 2 {
			if err := m.reportAddresses(t.Context(), s); err != nil {
				t.Fatal(err)
			}
		}
		if err := m.Client.Get(t.Context(), client.ObjectKeyFromObject(bootstrap), bootstrap); err != nil {
			t.Fatal(err)
		}
		if got := bootstrap.Annotations[rkev1.InfrastructureAddressesAnnotation]; got != want || writes > 1 {
			t.Errorf("owned by %s: %q after %d writes, want %q", owner, got, writes, want)
		}
	}
}
