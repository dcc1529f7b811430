package rkecontrolplane

import (
	"testing"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// TestPlantedPlanSecret: a Secret under the name of a machine's plan that was not made for the machine, or was made for an earlier one of
// its name, gets no plan.
func TestPlantedPlanSecret(t *testing.T) {
	r, in, next := bigCluster(t, 4)
	in.secrets.Items[1].OwnerReferences = nil
	in.secrets.Items[2].OwnerReferences[0].UID = "of-an-earlier-machine"
	in.secrets.Items[3].OwnerReferences[0].Name = "another"
	s := next()
	if err := r.loadMachines(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if len(s.machines) != 4 {
		t.Fatalf("%d machines", len(s.machines))
	}
	for i, m := range s.machines {
		if has := m.secret != nil; has != (i == 0) {
			t.Errorf("%s has a plan Secret: %t", rkev1.PlanSecretName(m.bootstrap.Name), has)
		}
	}
}
