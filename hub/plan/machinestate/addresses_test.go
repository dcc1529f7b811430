package machinestate

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// The addresses of a machine of a node driver are those of its driver; what the Machine shows later, those of the Node among them, changes
// nothing.
func TestReportedAddresses(t *testing.T) {
	machine, bootstrap := &clusterv1.Machine{}, &rkev1.RKEBootstrap{}
	machine.Status.Addresses = []clusterv1.MachineAddress{
		{Type: clusterv1.MachineInternalIP, Address: "10.0.0.1"}, {Type: clusterv1.MachineInternalIP, Address: "169.254.0.1"},
		{Type: clusterv1.MachineExternalIP, Address: "203.0.113.1"}, {Type: clusterv1.MachineExternalIP, Address: "203.0.113.9"},
		{Type: clusterv1.MachineHostName, Address: "a"},
	}
	bootstrap.Annotations = map[string]string{rkev1.InfrastructureAddressesAnnotation: `{"internal":["10.0.0.2","::1"],"external":["a"]}`}
	for group, want := range map[string]Addresses{
		"infrastructure.cluster.x-k8s.io": {Internal: []string{"10.0.0.1"}, External: []string{"203.0.113.1"}},
		"rke-machine.cattle.io":           {Internal: []string{"10.0.0.2"}, External: []string{}},
	} {
		machine.Spec.InfrastructureRef.APIGroup = group
		if diff := cmp.Diff(want, ReportedAddresses(machine, bootstrap, "203.0.113.9")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", group, diff)
		}
	}
	machine.Spec.InfrastructureRef.APIGroup = "rke-machine.cattle.io"
	bootstrap.Annotations[rkev1.InfrastructureAddressesAnnotation] = `{"internal":["10.0.0.2"],`
	if got := ReportedAddresses(machine, bootstrap, ""); !got.Empty() {
		t.Errorf("got %+v", got)
	}
}

// TestReportedEndpoint: the address of the control plane's endpoint is nobody's, in whatever way it is written.
func TestReportedEndpoint(t *testing.T) {
	machine := &clusterv1.Machine{}
	machine.Spec.InfrastructureRef.APIGroup = "infrastructure.cluster.x-k8s.io"
	machine.Status.Addresses = []clusterv1.MachineAddress{
		{Type: clusterv1.MachineInternalIP, Address: "2001:db8::10"}, {Type: clusterv1.MachineInternalIP, Address: "2001:db8::5"},
	}
	for endpoint, want := range map[string][]string{
		"2001:db8::10": {"2001:db8::5"}, "2001:DB8:0:0::10": {"2001:db8::5"}, "api.example.com": {"2001:db8::10", "2001:db8::5"},
	} {
		if diff := cmp.Diff(want, ReportedAddresses(machine, &rkev1.RKEBootstrap{}, endpoint).Internal); diff != "" {
			t.Errorf("%s (-want +got):\n%s", endpoint, diff)
		}
	}
}

func TestSelectAddresses(t *testing.T) {
	for _, tc := range []struct {
		name                   string
		stored, reported, want Addresses
		ipv6, given            bool
	}{
		{name: "nothing is known"},
		{
			name:     "one of each kind",
			reported: Addresses{Internal: []string{"10.0.0.1", "10.42.0.1"}, External: []string{"203.0.113.1"}},
			want:     Addresses{Internal: []string{"10.0.0.1"}, External: []string{"203.0.113.1"}},
		},
		{
			name:     "an address that comes later or another order changes nothing",
			stored:   Addresses{Internal: []string{"10.0.0.1"}},
			reported: Addresses{Internal: []string{"10.0.0.9", "10.0.0.1"}},
			want:     Addresses{Internal: []string{"10.0.0.1"}},
		},
		{
			name:     "an address that is gone is replaced",
			stored:   Addresses{Internal: []string{"10.0.0.1"}, External: []string{"203.0.113.1"}},
			reported: Addresses{Internal: []string{"10.0.0.1"}, External: []string{"203.0.113.2"}},
			want:     Addresses{Internal: []string{"10.0.0.1"}, External: []string{"203.0.113.2"}},
		},
		{
			name:   "a provider that says nothing for a while",
			stored: Addresses{Internal: []string{"10.0.0.1"}}, want: Addresses{Internal: []string{"10.0.0.1"}},
		},
		{
			name:   "a kind of address that is not reported any more",
			stored: Addresses{Internal: []string{"10.0.0.1"}}, reported: Addresses{External: []string{"203.0.113.1"}},
			want: Addresses{Internal: []string{"10.0.0.1"}, External: []string{"203.0.113.1"}},
		},
		{
			name: "a machine that was given a plan without an internal address", given: true,
			reported: Addresses{Internal: []string{"10.0.0.1"}, External: []string{"203.0.113.1"}},
			want:     Addresses{External: []string{"203.0.113.1"}},
		},
		{
			name: "a machine whose address has changed", given: true,
			stored: Addresses{Internal: []string{"10.0.0.1"}}, reported: Addresses{Internal: []string{"10.0.0.2"}},
			want: Addresses{Internal: []string{"10.0.0.2"}},
		},
		{
			name:     "IPv6 where the cluster has no use for it",
			reported: Addresses{Internal: []string{"fd00::1", "10.0.0.1"}}, want: Addresses{Internal: []string{"10.0.0.1"}},
		},
		{
			name: "IPv6 where the cluster uses it", ipv6: true,
			reported: Addresses{Internal: []string{"fd00::1", "10.0.0.1", "fd00::2"}}, want: Addresses{Internal: []string{"fd00::1", "10.0.0.1"}},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, SelectAddresses(tc.stored, tc.reported, tc.ipv6, tc.given)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
