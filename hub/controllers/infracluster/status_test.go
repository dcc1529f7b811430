package infracluster

import (
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
		provisioned bool
	}{
		{name: "no Cluster", scope: scope{infra: &rkev1.RKECluster{}}, ready: "False", reason: "WaitingForCluster", provisioned: true},
		{name: "in a Cluster", scope: scope{infra: &rkev1.RKECluster{}, cluster: &clusterv1.Cluster{}}, ready: "True", reason: "Provisioned", provisioned: true},
		{name: "being deleted", scope: scope{infra: deleted, machines: 2}, ready: "False", reason: "Deleting"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			setStatus(&tt.scope)
			ready := conditions.Get(tt.scope.infra, "Ready")
			if ready.Status != tt.ready || ready.Reason != tt.reason {
				t.Errorf("Ready is %+v", ready)
			}
			if got := ptr.Deref(tt.scope.infra.Status.Initialization.Provisioned, false); got != tt.provisioned {
				t.Errorf("provisioned is %t, want %t", got, tt.provisioned)
			}
		})
	}
}
