package machinestate

import (
	"testing"

	"k8s.io/utils/ptr"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// A machine of somebody's infrastructure provider waits for it, one that its user has brought does not.
func TestUnusable(t *testing.T) {
	machine := &clusterv1.Machine{}
	machine.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: "infrastructure.cluster.x-k8s.io", Kind: "LabMachine", Name: "a"}
	read := func() string {
		m, _, err := Of(machine, &rkev1.RKEBootstrap{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return m.Unusable
	}
	if got, want := read(), "has no infrastructure yet: LabMachine a is not provisioned"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	machine.Status.Initialization.InfrastructureProvisioned = ptr.To(true)
	if got := read(); got != "" {
		t.Errorf("got %q", got)
	}
	machine.Status.Initialization.InfrastructureProvisioned = nil
	machine.Spec.InfrastructureRef.APIGroup = rkev1.GroupVersion.Group
	if got := read(); got != "" {
		t.Errorf("got %q", got)
	}
}
