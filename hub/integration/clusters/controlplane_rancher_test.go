package clusters

import (
	"fmt"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

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

// TestTakeOverPoolFields: labels that a user removes from a pool go from the template of its MachineDeployment, of which Rancher owns all
// fields.
func TestTakeOverPoolFields(t *testing.T) {
	t.Parallel()
	cluster := pooled(t, "pool-fields")
	label := func(labels map[string]string) {
		testenv.Change(t, env, cluster, func(c *provisioningv1.Cluster) { c.Spec.RKEConfig.MachinePools[1].Labels = labels })
	}
	waitFor := func(what string, labeled bool) {
		t.Helper()
		testenv.Until(t, what, func() error {
			template := deployment(t, cluster, "workers").Spec.Template
			if _, has := template.Annotations[rkev1.LabelsAnnotation]; has != labeled {
				return fmt.Errorf("it has %v", template.Annotations)
			}
			return nil
		})
	}
	label(map[string]string{"disk": "ssd"})
	waitFor("the template to have the labels", true)
	testenv.Change(t, env, deployment(t, cluster, "workers"), func(md *clusterv1.MachineDeployment) {
		for _, entry := range md.ManagedFields {
			if entry.Manager == "drover-cluster" && entry.Operation == metav1.ManagedFieldsOperationApply {
				entry.Manager, entry.Operation = "rancher", metav1.ManagedFieldsOperationUpdate
				md.ManagedFields = append(md.ManagedFields, entry)
			}
		}
	})
	label(nil)
	waitFor("the template to have no labels any more", false)
}
