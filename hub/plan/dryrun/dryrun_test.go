package dryrun

import (
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	"github.com/drover-dev/drover/hub/testenv/fakeclient"
)

// TestNameTaken: machines of a cluster that was made for something else are not those of a Cluster with its name.
func TestNameTaken(t *testing.T) {
	native := &clusterv1.Cluster{}
	native.Namespace, native.Name = "ns", "demo"
	scheme := fakeclient.Scheme(t, clusterv1.AddToScheme, provisioningv1.AddToScheme)
	o := Options{Client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(native).Build()}
	_, err := o.diff(t.Context(), client.ObjectKeyFromObject(native), nil, withPools(), nil)
	if err == nil || !strings.Contains(err.Error(), "Cluster API Cluster demo exists and was not made for this Cluster") {
		t.Errorf("got %v", err)
	}
}
