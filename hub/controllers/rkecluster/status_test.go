package rkecluster

import (
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

func TestSetStatus(t *testing.T) {
	deleted := &rkev1.RKECluster{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &metav1.Time{Time: time.Unix(1, 0)}}}
	for _, tt := range []struct {
		name        string
		scope       scope
		ready       metav1.ConditionStatus
		reason      string
		deleting    string
		provisioned bool
	}{
		{name: "no Cluster", scope: scope{infra: &rkev1.RKECluster{}}, ready: "False", reason: "WaitingForCluster", provisioned: true},
		{name: "in a Cluster", scope: scope{infra: &rkev1.RKECluster{}, cluster: &clusterv1.Cluster{}}, ready: "True", reason: "Provisioned",
			provisioned: true},
		{name: "being deleted", scope: scope{infra: deleted, machines: 2}, ready: "False", reason: "Deleting", deleting: "WaitingForMachines"},
		{name: "a list failed", scope: scope{infra: deleted, err: errors.New("away")}, ready: "False", reason: "Deleting",
			deleting: "InternalError"},
		{name: "nothing is left", scope: scope{infra: deleted}, ready: "False", reason: "Deleting", deleting: "DeletionCompleted"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			setStatus(&tt.scope)
			ready := conditions.Get(tt.scope.infra, "Ready")
			if ready.Status != tt.ready || ready.Reason != tt.reason {
				t.Errorf("Ready is %+v", ready)
			}
			if c := conditions.Get(tt.scope.infra, clusterv1.DeletingCondition); (c == nil) != (tt.deleting == "") || c != nil &&
				c.Reason != tt.deleting {
				t.Errorf("Deleting is %+v", c)
			}
			if got := ptr.Deref(tt.scope.infra.Status.Initialization.Provisioned, false); got != tt.provisioned {
				t.Errorf("provisioned is %t, want %t", got, tt.provisioned)
			}
		})
	}
}
