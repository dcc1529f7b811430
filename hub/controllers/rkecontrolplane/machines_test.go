package rkecontrolplane

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// A machine of somebody else's infrastructure is known by what its provider reports, one that its user has brought by what it said itself.
func TestInputsOfInfrastructure(t *testing.T) {
	m := &machine{
		machine: &clusterv1.Machine{
			ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{rkev1.EtcdRoleLabel: "true"}},
			Spec: clusterv1.MachineSpec{
				ProviderID: "lab://a",
				InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: "infrastructure.cluster.x-k8s.io", Kind: "LabMachine",
					Name: "a"},
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

	m.readInputs(s)
	if m.inputs.ProviderID != "lab://a" || !m.inputs.Etcd {
		t.Errorf("got %+v", m.inputs)
	}
	if diff := cmp.Diff([]string{"10.0.0.1", "203.0.113.1"}, append(m.inputs.InternalAddresses, m.inputs.Addresses...)); diff != "" {
		t.Errorf("the addresses (-want +got):\n%s", diff)
	}
	m.bootstrap.Annotations = map[string]string{rkev1.InternalAddressAnnotation: "192.0.2.1, 192.0.2.2"}
	m.readInputs(s)
	if diff := cmp.Diff([]string{"192.0.2.1", "192.0.2.2"}, m.inputs.InternalAddresses); diff != "" {
		t.Errorf("what the machine's owner says does not win (-want +got):\n%s", diff)
	}

	m.machine.Spec.InfrastructureRef.APIGroup = rkev1.GroupVersion.Group
	m.readInputs(s)
	if m.inputs.ProviderID != "" || m.inputs.Addresses != nil {
		t.Errorf("a machine that its user has brought: %+v", m.inputs)
	}
}
