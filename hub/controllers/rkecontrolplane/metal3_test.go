package rkecontrolplane

import (
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/testenv/fakeclient"
	"github.com/drover-dev/drover/hub/util/capicontract"
)

// TestMetal3: a machine of Metal3 gets its first plan, with its provider ID, before its provider counts it as provisioned, which waits for
// the Node. It has to have registered, and its Metal3Machine to have a host.
func TestMetal3(t *testing.T) {
	const hash = "0123"
	for _, tt := range []struct{ name, kind, host, hash, owner, want string }{
		{"registered", "Metal3Machine", "ns/rack-1", hash, "u", "metal3://ns/rack-1/infra"},
		{"not registered", "Metal3Machine", "ns/rack-1", "", "u", ""},
		{"no host", "Metal3Machine", "", hash, "u", ""},
		{"of another Machine", "Metal3Machine", "ns/rack-1", hash, "other", ""},
		{"of another provider", "LabMachine", "ns/rack-1", hash, "u", ""},
	} {
		version := metal3Machine.WithVersion("v1beta2")
		infra := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"addresses": []any{
			map[string]any{"type": "InternalIP", "address": "10.0.0.7"}, map[string]any{"type": "Hostname", "address": "rack-1"},
		}}}}
		infra.SetGroupVersionKind(version)
		infra.SetNamespace("ns")
		infra.SetName("infra")
		infra.SetAnnotations(map[string]string{metal3Host: tt.host})
		infra.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: "m",
			UID: types.UID(tt.owner), Controller: new(true)}})
		definition := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{
			Name: capicontract.DefinitionName(metal3Machine), Labels: map[string]string{"cluster.x-k8s.io/v1beta2": "v1beta2"}}}
		scheme := fakeclient.Scheme(t, apiextensionsv1.AddToScheme, func(s *runtime.Scheme) error {
			s.AddKnownTypeWithName(version, &unstructured.Unstructured{})
			return nil
		})
		m := &machine{machine: &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "m", UID: "u"}},
			bootstrap: &rkev1.RKEBootstrap{}}
		m.machine.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: metal3Machine.Group, Kind: tt.kind, Name: "infra"}
		m.bootstrap.Annotations = map[string]string{rkev1.MachineSecretHashAnnotation: tt.hash}
		m.state.Unusable = "has no infrastructure yet"
		s := &scope{controlPlane: &rkev1.RKEControlPlane{}, cluster: &clusterv1.Cluster{}, machines: []*machine{m}}
		r := &Reconciler{Live: fake.NewClientBuilder().WithScheme(scheme).WithObjects(definition, infra).Build()}
		if err := r.findMetal3(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		usable := m.state.Unusable == "" && len(m.reported.Internal) == 1 && m.reported.Internal[0] == "10.0.0.7"
		if m.inputs.ProviderID != tt.want || usable != (tt.want != "") {
			t.Errorf("%s: the provider ID is %q, %+v", tt.name, m.inputs.ProviderID, m.state)
		}
	}
}
