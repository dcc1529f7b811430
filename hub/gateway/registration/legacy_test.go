package registration

import (
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/util/response"
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

// TestMachineOfAnotherCluster: a machine that registers for another cluster of its namespace reads which one it is in. Somebody else with
// its ID does not.
func TestMachineOfAnotherCluster(t *testing.T) {
	meta := metav1.ObjectMeta{Namespace: "fleet", Name: rkev1.MachineRequestName("a"), UID: "1",
		Annotations: map[string]string{rkev1.MachineSecretHashAnnotation: "hash"}}
	bootstrap := &rkev1.RKEBootstrap{ObjectMeta: meta, Spec: rkev1.RKEBootstrapSpec{ClusterName: "first"}}
	g := &Registrar{Options: Options{Live: known{objects: []client.Object{bootstrap, &clusterv1.Machine{ObjectMeta: meta}}}}}
	cluster := &provisioningv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "second"}}
	for hash, want := range map[string]int{"hash": http.StatusConflict, "another": http.StatusUnauthorized, "": http.StatusUnauthorized} {
		_, err := g.unprovenMachine(t.Context(), &managementv3.ClusterRegistrationToken{}, cluster,
			&registration{ID: "a", SecretHash: hash}, "192.0.2.7")
		if !response.IsCode(err, want) || strings.Contains(err.Error(), "fleet/first") != (want == http.StatusConflict) {
			t.Errorf("with the secret %q: %v", hash, err)
		}
	}
}
