package rkecontrolplane

import (
	"encoding/base64"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/plans"
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

// TestAddressesOfAdoptedMachine: a machine of a node driver that was given its plan by another hub, such as Rancher, keeps the addresses of
// its Node: a member of etcd does not start with another one.
func TestAddressesOfAdoptedMachine(t *testing.T) {
	const reported = `{"internal": ["10.0.0.1", "10.0.0.2", "2001:db8::2"], "external": ["203.0.113.1"]}`
	for _, tc := range []struct{ name, config, reported, want string }{
		{"both families", `{"node-ip": ["10.0.0.2", "2001:db8::2"]}`, reported, "10.0.0.2,2001:db8::2 203.0.113.1"},
		{"a single text", `{"node-ip": "10.0.0.2"}`, reported, "10.0.0.2 203.0.113.1"},
		{"the user's own", `{"node-ip": ["192.0.2.7"]}`, reported, " 203.0.113.1"},
		{"left to the distribution", `{}`, reported, " 203.0.113.1"},
		{"not reported yet", `{"node-ip": ["10.0.0.2"], "node-external-ip": ["203.0.113.1"]}`, "", "10.0.0.2 203.0.113.1"},
		{"nothing known", `{}`, "", " "},
	} {
		m := &machine{machine: &clusterv1.Machine{}, bootstrap: &rkev1.RKEBootstrap{}, secret: &corev1.Secret{}}
		m.machine.Spec.InfrastructureRef.APIGroup = "rke-machine.cattle.io"
		m.bootstrap.Annotations = map[string]string{rkev1.InfrastructureAddressesAnnotation: tc.reported}
		m.secret.Data = map[string][]byte{plans.KeyPlan: []byte("{}")}
		m.report.Delivered.Files = []plans.File{{Path: "/etc/rancher/rke2/config.yaml.d/50-rancher.yaml",
			Content: base64.StdEncoding.EncodeToString([]byte(tc.config))}}
		m.readInputs(&scope{controlPlane: &rkev1.RKEControlPlane{}, cluster: &clusterv1.Cluster{}})
		got := strings.Join(m.inputs.InternalAddresses, ",") + " " + strings.Join(m.inputs.Addresses, ",")
		if got != tc.want {
			t.Errorf("%s: got %q, want %q", tc.name, got, tc.want)
		}
	}
}
