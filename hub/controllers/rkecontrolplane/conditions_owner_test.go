package rkecontrolplane

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/plan/rollout"
	"github.com/drover-dev/drover/hub/testenv/fakeclient"
)

// TestConditionsByOwner: what nobody replaces, such as a machine that its user has brought, is not said to be replaced, and a MachineSet
// of the user's has no machines too many because no MachineDeployment asks for them. Whether a Machine is up to date, Cluster API says of
// those of MachineDeployments alone.
func TestConditionsByOwner(t *testing.T) {
	for name, tc := range map[string]struct {
		owner, deployment       string
		remediating, scaledDown string
	}{
		"a Machine alone": {remediating: "False NotRemediating ", scaledDown: "False NotScalingDown "},
		"of a MachineSet": {owner: "MachineSet", remediating: "True Remediating Remediating 1 control plane node: a",
			scaledDown: "False NotScalingDown "},
		"of a MachineDeployment": {owner: "MachineSet", deployment: "servers",
			remediating: "True Remediating Remediating 1 control plane node: a",
			scaledDown:  "True ScalingDown 1 control plane Machines of MachineDeployments exist, 0 are desired"},
	} {
		a := server("a", rollout.ProgressApplied, rollout.ChangeNone, "v1.36.3+k3s1")
		if tc.owner != "" {
			a.machine.OwnerReferences = []metav1.OwnerReference{{Kind: tc.owner, Controller: new(true)}}
		}
		if tc.deployment != "" {
			a.machine.Labels = map[string]string{clusterv1.MachineDeploymentNameLabel: tc.deployment}
		}
		conditions.Set(a.machine, metav1.Condition{Type: clusterv1.MachineOwnerRemediatedCondition, Status: metav1.ConditionFalse,
			Reason: clusterv1.MachineOwnerRemediatedWaitingForRemediationReason})
		a.machine.Namespace, a.machine.UID = "fleet", "a"
		s := &scope{controlPlane: &rkev1.RKEControlPlane{}, loaded: true, machines: []*machine{a}}
		s.controlPlane.Spec.KubernetesVersion = "v1.36.3+k3s1"
		setContractConditions(s)
		if got := summary(s); got["Remediating"] != tc.remediating || got["ScalingDown"] != tc.scaledDown {
			t.Errorf("%s: got %q and %q", name, got["Remediating"], got["ScalingDown"])
		}
		c := fake.NewClientBuilder().WithScheme(fakeclient.Scheme(t, clusterv1.AddToScheme)).WithStatusSubresource(a.machine).
			WithObjects(a.machine).Build()
		read := func() *clusterv1.Machine {
			found := &clusterv1.Machine{}
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(a.machine), found); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			return found
		}
		a.machine = read()
		if err := (&Reconciler{Client: c}).updateMachine(t.Context(), s, a, true); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if said := conditions.IsTrue(read(), clusterv1.MachineUpToDateCondition); said != (tc.deployment == "") {
			t.Errorf("%s: the hub says that the Machine is up to date: %t", name, said)
		}
	}
}
