package clusters

import (
	"fmt"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/testenv"
)

// TestTakeOverFields: what a user removes from a Cluster, or switches off, goes from its RKEControlPlane, of which Rancher owns all fields.
func TestTakeOverFields(t *testing.T) {
	t.Parallel()
	cluster := pooled(t, "fields")
	testenv.Change(t, env, cluster, func(c *provisioningv1.Cluster) {
		c.Spec.LocalClusterAuthEndpoint.Enabled = true
		c.Spec.RKEConfig.MachineGlobalConfig = rkev1.GenericMap{Data: map[string]any{"debug": true, "selinux": true}}
	})
	controlPlane := &rkev1.RKEControlPlane{}
	waitFor := func(what string, enabled bool, arguments int) {
		t.Helper()
		testenv.Until(t, what, func() error {
			env.Get(t, cluster.Namespace, cluster.Name, controlPlane)
			spec := controlPlane.Spec
			if spec.LocalClusterAuthEndpoint.Enabled != enabled || len(spec.MachineGlobalConfig.Data) != arguments {
				return fmt.Errorf("it has %+v and %v", spec.LocalClusterAuthEndpoint, spec.MachineGlobalConfig.Data)
			}
			return nil
		})
	}
	waitFor("the RKEControlPlane to be changed", true, 2)
	isRancher := func(e metav1.ManagedFieldsEntry) bool { return e.Manager == "rancher" }
	testenv.Change(t, env, controlPlane, func(c *rkev1.RKEControlPlane) {
		for _, entry := range c.ManagedFields {
			if entry.Manager == "drover-cluster" && entry.Operation == metav1.ManagedFieldsOperationApply {
				entry.Manager, entry.Operation = "rancher", metav1.ManagedFieldsOperationUpdate
				c.ManagedFields = append(c.ManagedFields, entry)
			}
		}
	})
	if !slices.ContainsFunc(controlPlane.ManagedFields, isRancher) {
		t.Fatalf("Rancher owns nothing: %+v", controlPlane.ManagedFields)
	}
	testenv.Change(t, env, cluster, func(c *provisioningv1.Cluster) {
		c.Spec.LocalClusterAuthEndpoint.Enabled = false
		c.Spec.RKEConfig.MachineGlobalConfig = rkev1.GenericMap{Data: map[string]any{"selinux": true}}
	})
	waitFor("the RKEControlPlane to be what the Cluster is", false, 1)
}
