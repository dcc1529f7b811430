package rkebootstrap

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// TestMachinePool: the RKEBootstrap of a MachinePool never gets a Machine, and says at once what to use instead.
func TestMachinePool(t *testing.T) {
	now := time.Now()
	owner := func(apiVersion, kind string) metav1.OwnerReference {
		return metav1.OwnerReference{APIVersion: apiVersion, Kind: kind, Name: "pool", UID: "u", Controller: new(true)}
	}
	for name, tc := range map[string]struct {
		owners []metav1.OwnerReference
		want   string
	}{
		"of a MachinePool":                  {[]metav1.OwnerReference{owner(clusterv1.GroupVersion.String(), "MachinePool")}, reasonMachinePool},
		"of one in an earlier version":      {[]metav1.OwnerReference{owner("cluster.x-k8s.io/v1beta1", "MachinePool")}, reasonMachinePool},
		"of a MachinePool of somebody else": {[]metav1.OwnerReference{owner("example.com/v1", "MachinePool")}, reasonWaitingForMachine},
		"of a MachineSet, for a moment": {[]metav1.OwnerReference{owner(clusterv1.GroupVersion.String(), "MachineSet")},
			reasonWaitingForMachine},
		"of nobody": {want: reasonWaitingForMachine},
	} {
		s := &scope{bootstrap: &rkev1.RKEBootstrap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pool", OwnerReferences: tc.owners,
			CreationTimestamp: metav1.NewTime(now)}}}
		if err := (&Reconciler{}).reconcileNormal(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		refused := tc.want == reasonMachinePool
		if s.identity.Reason != tc.want || s.data != s.identity || refused != strings.Contains(s.identity.Message, "a MachineDeployment") {
			t.Errorf("%s: got %+v", name, s.identity)
		}
		if waits := s.untilWaitsShown(time.Minute, now) > 0; waits == refused {
			t.Errorf("%s: it is not said at once: %t", name, waits)
		}
	}
}

// TestLongNames: names that users have chosen, and that cannot be labels of the objects of a machine, are refused with what to do.
func TestLongNames(t *testing.T) {
	long := strings.Repeat("a", 64)
	for _, names := range [][2]string{{long, "b"}, {"a", long}} {
		s := &scope{bootstrap: &rkev1.RKEBootstrap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: names[0]}},
			machine: &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: names[1]}}, cluster: &clusterv1.Cluster{}}
		if err := (&Reconciler{}).reconcileNormal(t.Context(), s); err != nil || s.identity.Reason != reasonNameTooLong || s.data != s.identity {
			t.Errorf("%v: %+v, %v", names, s.identity, err)
		}
	}
}
