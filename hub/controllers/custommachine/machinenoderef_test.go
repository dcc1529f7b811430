package custommachine

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/testenv/fakeclient"
)

// TestHostNameChanged: a Machine whose machine has another host name names the Node of that, once it is the only one and Cluster API has
// its provider ID.
func TestHostNameChanged(t *testing.T) {
	for name, tc := range map[string]struct {
		node, label, provider string
		change                func(*clusterv1.Machine)
		want                  string
	}{
		"another host name":                      {node: "after", label: "u", provider: "k3s://after", want: "after"},
		"the same host name":                     {node: "before", label: "u", provider: "k3s://before", want: "before"},
		"Cluster API has the earlier one":        {node: "after", label: "u", provider: "k3s://before", want: "before"},
		"found by its provider ID, after a move": {node: "after", label: "of-another-hub", provider: "k3s://after", want: "before"},
		"no Node was found":                      {provider: "k3s://after", want: "before"},
		"Cluster API has not seen a Node": {node: "after", label: "u", provider: "k3s://after",
			change: func(m *clusterv1.Machine) { m.Status.NodeRef.Name = "" }},
		"the Machine is paused": {node: "after", label: "u", provider: "k3s://after", want: "before",
			change: func(m *clusterv1.Machine) { m.Annotations = map[string]string{clusterv1.PausedAnnotation: ""} }},
	} {
		t.Run(name, func(t *testing.T) {
			machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "a", UID: "u"}}
			machine.Spec.ProviderID, machine.Status.NodeRef.Name = tc.provider, "before"
			if tc.change != nil {
				tc.change(machine)
			}
			c := fake.NewClientBuilder().WithScheme(fakeclient.Scheme(t, clusterv1.AddToScheme)).WithObjects(machine).
				WithStatusSubresource(machine).Build()
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(machine), machine); err != nil {
				t.Fatal(err)
			}
			s := &scope{machine: machine}
			if tc.node != "" {
				s.node = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: tc.node, Labels: map[string]string{rkev1.MachineUIDLabel: tc.label}},
					Spec: corev1.NodeSpec{ProviderID: "k3s://" + tc.node}}
			}
			if _, err := (&Reconciler{Client: c}).reconcileNodeRef(t.Context(), s); err != nil {
				t.Fatal(err)
			}
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(machine), machine); err != nil {
				t.Fatal(err)
			}
			if machine.Status.NodeRef.Name != tc.want {
				t.Errorf("the Machine names %q, want %q", machine.Status.NodeRef.Name, tc.want)
			}
		})
	}
}
