package custommachine

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

func TestSetStatus(t *testing.T) {
	machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{UID: "u"}}
	lost := &rkev1.CustomMachine{Status: rkev1.CustomMachineStatus{Conditions: []metav1.Condition{
		{Type: "NodeFound", Status: metav1.ConditionUnknown, Reason: "ConnectionDown", Message: "Waiting for the connection"}}}}
	for _, tt := range []struct {
		name        string
		scope       scope
		reason      string
		provisioned bool
	}{
		{name: "no Machine", scope: scope{custom: &rkev1.CustomMachine{}}, reason: "WaitingForMachine"},
		{name: "no Node", scope: scope{custom: &rkev1.CustomMachine{}, machine: machine}, reason: "WaitingForNode"},
		{name: "no connection", scope: scope{custom: lost, machine: machine}, reason: "ConnectionDown"},
		{name: "Node found", scope: scope{custom: &rkev1.CustomMachine{Spec: rkev1.CustomMachineSpec{ProviderID: "k3s://a"}}, machine: machine},
			reason: "NodeFound", provisioned: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			setStatus(&tt.scope)
			custom := tt.scope.custom
			ready := readyCondition(&tt.scope)
			if ready.Reason != tt.reason || (ready.Status == metav1.ConditionTrue) != tt.provisioned || (ready.Message == "") != tt.provisioned {
				t.Errorf("Ready is %+v, want reason %s", ready, tt.reason)
			}
			if custom.Status.Ready != tt.provisioned || ptr.Deref(custom.Status.Initialization.Provisioned, false) != tt.provisioned {
				t.Errorf("provisioned: %+v, want %t", custom.Status, tt.provisioned)
			}
		})
	}
}
