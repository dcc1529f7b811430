package controlplane

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

func TestSettle(t *testing.T) {
	for _, tc := range []struct {
		name                   string
		stored, reported, want addressSet
		ipv6                   bool
	}{
		{name: "nothing is known"},
		{
			name:     "one of each kind",
			reported: addressSet{Internal: []string{"10.0.0.1", "10.42.0.1"}, External: []string{"203.0.113.1"}},
			want:     addressSet{Internal: []string{"10.0.0.1"}, External: []string{"203.0.113.1"}},
		},
		{
			name:     "an address that comes later or another order changes nothing",
			stored:   addressSet{Internal: []string{"10.0.0.1"}},
			reported: addressSet{Internal: []string{"10.0.0.9", "10.0.0.1"}},
			want:     addressSet{Internal: []string{"10.0.0.1"}},
		},
		{
			name:     "an address that is gone is replaced",
			stored:   addressSet{Internal: []string{"10.0.0.1"}, External: []string{"203.0.113.1"}},
			reported: addressSet{Internal: []string{"10.0.0.1"}, External: []string{"203.0.113.2"}},
			want:     addressSet{Internal: []string{"10.0.0.1"}, External: []string{"203.0.113.2"}},
		},
		{
			name:   "a provider that says nothing for a while",
			stored: addressSet{Internal: []string{"10.0.0.1"}}, want: addressSet{Internal: []string{"10.0.0.1"}},
		},
		{
			name:   "a kind of address that is not reported any more",
			stored: addressSet{Internal: []string{"10.0.0.1"}}, reported: addressSet{External: []string{"203.0.113.1"}},
			want: addressSet{Internal: []string{"10.0.0.1"}, External: []string{"203.0.113.1"}},
		},
		{
			name:     "IPv6 where the cluster has no use for it",
			reported: addressSet{Internal: []string{"fd00::1", "10.0.0.1"}}, want: addressSet{Internal: []string{"10.0.0.1"}},
		},
		{
			name: "IPv6 where the cluster uses it", ipv6: true,
			reported: addressSet{Internal: []string{"fd00::1", "10.0.0.1", "fd00::2"}}, want: addressSet{Internal: []string{"fd00::1", "10.0.0.1"}},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, settle(tc.stored, tc.reported, tc.ipv6)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// A machine of somebody else's infrastructure is known by what its provider reports, one that its user has brought by what it said itself.
func TestFactsOfInfrastructure(t *testing.T) {
	m := &machine{
		machine: &clusterv1.Machine{
			ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{rkev1.EtcdRoleLabel: "true"}},
			Spec: clusterv1.MachineSpec{
				ProviderID:        "lab://a",
				InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: "infrastructure.cluster.x-k8s.io", Kind: "LabMachine", Name: "a"},
			},
			Status: clusterv1.MachineStatus{Addresses: []clusterv1.MachineAddress{
				{Type: "InternalDNS", Address: "a"}, {Type: "InternalIP", Address: "fe80::1"}, {Type: "InternalIP", Address: "10.0.0.100"},
				{Type: "InternalIP", Address: "10.0.0.1"}, {Type: "ExternalIP", Address: "203.0.113.1"},
			}},
		},
		bootstrap: &rkev1.RKEBootstrap{}, secret: &corev1.Secret{},
	}
	s := &scope{controlPlane: &rkev1.RKEControlPlane{}, cluster: &clusterv1.Cluster{}}
	s.cluster.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{Host: "10.0.0.100", Port: 6443}

	m.readFacts(s)
	if m.facts.ProviderID != "lab://a" || !m.facts.Etcd {
		t.Errorf("got %+v", m.facts)
	}
	if diff := cmp.Diff([]string{"10.0.0.1", "203.0.113.1"}, append(m.facts.InternalAddresses, m.facts.Addresses...)); diff != "" {
		t.Errorf("the addresses (-want +got):\n%s", diff)
	}
	m.bootstrap.Annotations = map[string]string{rkev1.InternalAddressAnnotation: "192.0.2.1, 192.0.2.2"}
	m.readFacts(s)
	if diff := cmp.Diff([]string{"192.0.2.1", "192.0.2.2"}, m.facts.InternalAddresses); diff != "" {
		t.Errorf("what the machine's owner says does not win (-want +got):\n%s", diff)
	}

	m.machine.Spec.InfrastructureRef.APIGroup = rkev1.GroupVersion.Group
	m.readFacts(s)
	if m.facts.ProviderID != "" || m.facts.Addresses != nil {
		t.Errorf("a machine that its user has brought: %+v", m.facts)
	}
}
