package rkebootstrap

import (
	"errors"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/lru"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/plan/bootstrapdata"
	"github.com/drover-dev/drover/hub/util/capicontract"
	"github.com/drover-dev/drover/packaging/install"
)

func TestDataSecret(t *testing.T) {
	const lab = "infrastructure.cluster.x-k8s.io"
	tests := []struct {
		name     string
		group    string
		userdata rkev1.Userdata
		begins   string
		format   string
		invalid  string
	}{
		{name: "custom machine", group: "rke.cattle.io", begins: "#!/bin/sh\n", format: "cloud-config"},
		{name: "machine of a node driver", group: "rke-machine.cattle.io", begins: "#!/bin/sh\n", format: "cloud-config"},
		{name: "machine of another provider", group: lab, begins: "#cloud-config\n", format: "cloud-config"},
		{name: "as a script", group: lab, userdata: rkev1.Userdata{Format: rkev1.ScriptFormat}, begins: "#!/bin/sh\n", format: "cloud-config"},
		{name: "as Ignition", group: lab, userdata: rkev1.Userdata{Format: rkev1.IgnitionFormat}, begins: "{", format: "ignition"},
		{name: "user data of a node driver", group: "rke-machine.cattle.io", userdata: rkev1.Userdata{Format: rkev1.CloudConfigFormat},
			invalid: "spec.userdata: machines of node drivers take user data in their machine configuration"},
		{name: "broken user data", group: lab, userdata: rkev1.Userdata{InlineUserdata: "- a"},
			invalid: "spec.userdata.inlineUserdata: it is not a cloud-config"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := &scope{cluster: &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "one"}}}
			s.bootstrap, s.machine = testObjects()
			s.bootstrap.Spec.Userdata = tt.userdata
			s.machine.Spec.InfrastructureRef.APIGroup = tt.group
			got, err := (&Reconciler{packed: lru.New(1)}).dataSecret(s, []install.Var{{Name: install.VarServer, Value: "https://hub.example.com"}})
			var invalid *bootstrapdata.InvalidError
			if tt.invalid != "" {
				if !errors.As(err, &invalid) || !strings.HasPrefix(err.Error(), tt.invalid) {
					t.Errorf("got %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if !strings.HasPrefix(string(got.Data["value"]), tt.begins) || string(got.Data["format"]) != tt.format || len(got.Data) != 2 {
				t.Errorf("the data begin with %q, in the format %s", got.Data["value"][:10], got.Data["format"])
			}
			if got.Name != "custom-0123456789ab-machine-bootstrap" || got.Labels[clusterv1.ClusterNameLabel] != "one" || !metav1.IsControlledBy(got,
				s.bootstrap) {
				t.Error("the bootstrap data lack what the contract wants: name, cluster label and owner")
			}
		})
	}
}

// TestLongUserData: a document that its cloud takes only compressed is compressed for providers that hand on bytes. For others it stays the
// text that they take it for, however long it is.
func TestLongUserData(t *testing.T) {
	s := &scope{cluster: &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "one"}}}
	s.bootstrap, s.machine = testObjects()
	r := &Reconciler{packed: lru.New(8)}
	for _, tt := range []struct {
		kind     string
		commands int
		packed   bool
	}{
		{"AWSMachine", 1, false},
		{"AWSMachine", 300, true},
		{"VSphereMachine", 300, false},
		{"VSphereMachine", 3000, true},
		{"GCPMachine", 3000, false},
		{"HCloudMachine", 3000, false},
		{"Metal3Machine", 3000, false},
		{"KubevirtMachine", 3000, false},
	} {
		s.machine.Spec.InfrastructureRef.APIGroup, s.machine.Spec.InfrastructureRef.Kind = capicontract.InfrastructureGroup, tt.kind
		s.bootstrap.Spec.Userdata.InlineUserdata = "runcmd:\n" + strings.Repeat("- echo one of many\n", tt.commands)
		got, err := r.dataSecret(s, []install.Var{{Name: install.VarServer, Value: "https://hub.example.com"}})
		if err != nil {
			t.Fatal(err)
		}
		if packed := !strings.HasPrefix(string(got.Data["value"]), "#cloud-config\n"); packed != tt.packed {
			t.Errorf("%s, %d bytes: compressed is %t", tt.kind, len(got.Data["value"]), packed)
		}
	}
}
