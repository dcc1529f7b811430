package rkecontrolplane

import (
	"reflect"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/plan/rollout"
)

// TestRolloutInputs: all that rollout decides on is read from the cluster. A rule about an input that nobody sets would never decide.
func TestRolloutInputs(t *testing.T) {
	op := &operationv1.ETCDSnapshotSave{}
	op.Status.Phase = operationv1.PhaseInProgress
	drain := rkev1.DrainOptions{Enabled: true}
	controlPlane := &rkev1.RKEControlPlane{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{rkev1.InitNodeMachineIDLabel: "a"}}}
	controlPlane.Spec.UpgradeStrategy = rkev1.ClusterUpgradeStrategy{ControlPlaneConcurrency: "1", ControlPlaneDrainOptions: drain,
		WorkerConcurrency: "10%", WorkerDrainOptions: drain}
	s := &scope{
		controlPlane: controlPlane, operation: op, orphanedMembers: []rollout.Member{{Node: "gone"}},
		machines: []*machine{{machine: &clusterv1.Machine{}, state: rollout.Machine{Name: "a", JoinURL: "https://a:6443"}}},
		election: rollout.Election{Wait: rollout.Wait{Reason: rollout.ReasonWaitingForInitNode}},
	}
	in := reflect.ValueOf(s.rolloutInputs(time.Now()))
	for i := range in.NumField() {
		if in.Field(i).IsZero() {
			t.Errorf("%s is never set", in.Type().Field(i).Name)
		}
	}
}
