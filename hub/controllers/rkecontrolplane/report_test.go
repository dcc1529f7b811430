package rkecontrolplane

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

func TestNeedsVersion(t *testing.T) {
	of := func(owner, version string) *clusterv1.Machine {
		m := &clusterv1.Machine{Spec: clusterv1.MachineSpec{Version: version}}
		m.OwnerReferences = []metav1.OwnerReference{{Kind: owner, Controller: ptr.To(true)}}
		return m
	}
	deleted := of("MachineSet", "")
	deleted.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	for name, tt := range map[string]struct {
		machine *clusterv1.Machine
		want    bool
	}{
		"of a MachineSet, new":       {of("MachineSet", ""), true},
		"of a MachineSet, told":      {of("MachineSet", "v1.36.3+k3s1"), false},
		"of a MachineSet, upgrading": {of("MachineSet", "v1.35.0+k3s1"), true},
		"being deleted":              {deleted, false},
		"a custom machine":           {of("RKEControlPlane", ""), false},
		"nobody's":                   {&clusterv1.Machine{}, false},
	} {
		if got := needsVersion(tt.machine, "v1.36.3+k3s1"); got != tt.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
