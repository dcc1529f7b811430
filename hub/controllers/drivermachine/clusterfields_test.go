package drivermachine

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// TestClusterFields: machines are created with what their cloud has to know of the cluster, unless the user has written it.
func TestClusterFields(t *testing.T) {
	type fields = map[string]any
	const tag = "kubernetes.io/cluster/c-m-1,owned"
	for name, tc := range map[string]struct {
		driver     string
		foreign    bool
		spec, want fields
	}{
		"AWS":                        {driver: "amazonec2", want: fields{"tags": tag}},
		"AWS, no tags":               {driver: "amazonec2", spec: fields{"tags": ""}, want: fields{"tags": tag}},
		"AWS, other tags":            {driver: "amazonec2", spec: fields{"tags": "a,b"}, want: fields{"tags": tag + ",a,b"}},
		"AWS, the user's cluster":    {driver: "amazonec2", spec: fields{"tags": "kubernetes.io/cluster/x,shared"}},
		"AWS, another control plane": {driver: "amazonec2", foreign: true, want: fields{}},
		"Harvester":                  {driver: "harvester", want: fields{"clusterName": "driven"}},
		"Harvester, the user's name": {driver: "harvester", spec: fields{"clusterName": "x"}},
		"any other driver":           {driver: "lab", spec: fields{"size": "2"}},
		"AWS, the driver's group":    {driver: "amazonec2", spec: fields{"tags": tag, "securityGroup": []any{"rancher-nodes"}}},
		"AWS, the user's group": {
			driver: "amazonec2", spec: fields{"tags": tag, "securityGroup": []any{"own"}},
			want: fields{"tags": tag, "securityGroup": []any{"own"}, "securityGroupReadonly": true},
		},
		"AWS, the user's group with rules": {
			driver: "amazonec2", spec: fields{"tags": tag, "securityGroup": []any{"own"}, "securityGroupReadonly": false},
		},
	} {
		h := newHub(t, &fakeDrivers{})
		h.driver = tc.driver
		cluster, machine := &clusterv1.Cluster{}, &clusterv1.Machine{}
		for key, o := range map[string]client.Object{"driven": cluster, "one": machine} {
			if err := h.Client.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: key}, o); err != nil {
				t.Fatal(err)
			}
		}
		cluster.Spec.ControlPlaneRef = clusterv1.ContractVersionedObjectReference{APIGroup: rkev1.GroupVersion.Group, Kind: "RKEControlPlane",
			Name: "driven"}
		if tc.foreign {
			cluster.Spec.ControlPlaneRef.APIGroup = "controlplane.example.com"
		}
		h.create(&rkev1.RKEControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "driven", OwnerReferences: []metav1.OwnerReference{
			*metav1.NewControllerRef(cluster, clusterv1.GroupVersion.WithKind("Cluster"))}},
			Spec: rkev1.RKEControlPlaneSpec{ManagementClusterName: "c-m-1"}})
		if tc.spec != nil {
			h.change(func(infra *unstructured.Unstructured) { infra.Object["spec"] = tc.spec })
		}
		work, fault, err := h.prepare(t.Context(), &scope{object: h.infra, machine: machine, cluster: cluster, stored: &stored{}}, false)
		if err != nil || fault != nil {
			t.Fatalf("%s: %v, %v", name, fault, err)
		}
		if tc.want == nil {
			tc.want = tc.spec
		}
		if diff := cmp.Diff(tc.want, work.Spec); diff != "" {
			t.Errorf("%s: -want +got:\n%s", name, diff)
		}
	}
}
