package registration

import (
	"strings"
	"testing"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

func TestReturnsByID(t *testing.T) {
	id := strings.Repeat("0123456789abcdef", 4)[:63]
	legacy := func() (*rkev1.RKEBootstrap, *clusterv1.Machine) {
		bootstrap, machine := &rkev1.RKEBootstrap{}, &clusterv1.Machine{}
		bootstrap.Labels = map[string]string{rkev1.MachineIDLabel: rkev1.MachineIDLabelValue(id)}
		machine.Status.NodeRef.Name = "node"
		machine.Status.Addresses = clusterv1.MachineAddresses{{Type: "Hostname", Address: "node"}, {Type: "InternalIP", Address: "192.0.2.7"}}
		return bootstrap, machine
	}
	for name, test := range map[string]struct {
		change  func(*rkev1.RKEBootstrap, *clusterv1.Machine)
		id      string
		address string
		want    bool
	}{
		"from its Node's address":       {address: "192.0.2.7", want: true},
		"the same address in IPv6 form": {address: "::ffff:192.0.2.7", want: true},
		"from elsewhere":                {address: "192.0.2.8"},
		"a host name is no address":     {address: "node"},
		"before it has a Node": {change: func(_ *rkev1.RKEBootstrap, m *clusterv1.Machine) {
			m.Status = clusterv1.MachineStatus{}
		}, address: "192.0.2.8", want: true},
		"it registered with a secret": {change: func(b *rkev1.RKEBootstrap, _ *clusterv1.Machine) {
			b.Annotations = map[string]string{rkev1.MachineSecretHashAnnotation: "hash"}
		}, address: "192.0.2.7"},
		"another's ID": {id: strings.Repeat("f", 63), address: "192.0.2.7"},
		"an ID that somebody chose": {change: func(b *rkev1.RKEBootstrap, _ *clusterv1.Machine) {
			b.Labels[rkev1.MachineIDLabel] = rkev1.MachineIDLabelValue("worker-1")
		}, id: "worker-1", address: "192.0.2.7"},
		// Clusters of other hubs have the ID itself for all to see.
		"an ID that the label shows": {change: func(b *rkev1.RKEBootstrap, _ *clusterv1.Machine) {
			b.Labels[rkev1.MachineIDLabel] = id
		}, address: "192.0.2.7"},
		"the label, sent as an ID": {id: rkev1.MachineIDLabelValue(id), address: "192.0.2.7"},
	} {
		bootstrap, machine := legacy()
		if test.change != nil {
			test.change(bootstrap, machine)
		}
		if test.id == "" {
			test.id = id
		}
		if got := returnsByID(bootstrap, machine, &registration{ID: test.id}, test.address); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
