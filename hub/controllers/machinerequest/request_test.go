package machinerequest

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

func TestParseRequest(t *testing.T) {
	for _, tt := range []struct {
		name, data string
		want       machineRequest
		err        string
	}{
		{name: "everything", data: `{"id":["abc"],"role-etcd":["true"],"role-control-plane":["TRUE"],"role-worker":["true"],"node-name":["n1"],
			"address":["192.0.2.1"],"internal-address":["10.0.0.1"],"detected-address":["10.0.0.2"],"labels":["cattle.io/os=linux,a=b","c="],
			"taints":["k=v:NoSchedule, x:NoExecute"],"machine-secret-hash":["ff"],"unknown":["x"]}`,
			want: machineRequest{id: "abc", etcd: true, controlPlane: true, worker: true, nodeName: "n1", address: "192.0.2.1",
				internalAddress: "10.0.0.1", detectedAddress: "10.0.0.2", labels: map[string]string{"cattle.io/os": "linux", "a": "b", "c": ""},
				taints: []corev1.Taint{{Key: "k", Value: "v", Effect: "NoSchedule"}, {Key: "x", Effect: "NoExecute"}}, secretHash: "ff"}},
		{name: "a worker", data: `{"id":["abc"],"role-worker":["true"]}`, want: machineRequest{id: "abc", worker: true,
			labels: map[string]string{}}},
		{name: "no JSON", data: `{`, err: "decoding the request"},
		{name: "no ID", data: `{"role-worker":["true"]}`, err: "no ID"},
		{name: "no role", data: `{"id":["abc"],"role-worker":["yes"]}`, err: "--worker"},
		{name: "bad node name", data: `{"id":["a"],"role-worker":["true"],"node-name":["A b"]}`, err: "node name"},
		{name: "long node name", data: `{"id":["a"],"role-worker":["true"],"node-name":["` + strings.Repeat("n", 64) + `"]}`,
			err: "has more than 63 characters"},
		{name: "label of the hub", data: `{"id":["a"],"role-worker":["true"],"labels":["rke.cattle.io/init-node=true"]}`, err: "reserved"},
		{name: "label of Cluster API", data: `{"id":["a"],"role-worker":["true"],"labels":["cluster.x-k8s.io/cluster-name=b"]}`, err: "reserved"},
		{name: "bad label", data: `{"id":["a"],"role-worker":["true"],"labels":["a=b c"]}`, err: `"a=b c" is not valid`},
		{name: "bad taint", data: `{"id":["a"],"role-worker":["true"],"taints":["a=b:Maybe"]}`, err: ":NoSchedule"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := parseRequest([]byte(tt.data))
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Fatalf("got error %v, want one with %q", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(machineRequest{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// FuzzParseRequest: whatever a machine sends, it gets no label that is the hub's, and what is accepted can be made into objects.
func FuzzParseRequest(f *testing.F) {
	f.Add([]byte(`{"id":["abc"],"role-etcd":["true"],"labels":["a=b,rke.cattle.io/x=y"],"taints":["k=v:NoSchedule"]}`))
	f.Add([]byte(`{"id":["abc"],"role-worker":["true"],"labels":[" a = b ",",,"]}`))
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "one"}}
	f.Fuzz(func(t *testing.T, data []byte) {
		request, err := parseRequest(data)
		if err != nil {
			return
		}
		for key := range request.labels {
			for _, prefix := range rkev1.ReservedPrefixes {
				if strings.HasPrefix(key, prefix) {
					t.Errorf("the label %q was accepted", key)
				}
			}
		}
		objects, err := newMachine(cluster, rkev1.MachineRequestName(request.id), request)
		if err != nil {
			t.Fatal(err)
		}
		if objects.machine.Labels[rkev1.InitNodeLabel] != "" {
			t.Error("a machine made itself the init node")
		}
	})
}

func TestNewMachine(t *testing.T) {
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "one", UID: "u"}}
	request := machineRequest{id: "abc", etcd: true, controlPlane: true, nodeName: "n1", address: "192.0.2.1",
		labels: map[string]string{"a": "b", "cattle.io/os": "linux", "topology.cluster.x-k8s.io/owned": "",
			"node.cluster.x-k8s.io/a": "b"}, taints: []corev1.Taint{{Key: "k", Effect: "NoSchedule"}}, secretHash: "ff"}
	got, err := newMachine(cluster, "custom-x", request)
	if err != nil {
		t.Fatal(err)
	}
	labels := map[string]string{
		clusterv1.ClusterNameLabel:         "one",
		rkev1.ClusterNameLabel:             "one",
		rkev1.MachineIDLabel:               rkev1.MachineIDLabelValue("abc"),
		rkev1.EtcdRoleLabel:                "true",
		rkev1.ControlPlaneRoleLabel:        "true",
		clusterv1.MachineControlPlaneLabel: "",
		rkev1.NodeNameLabel:                "n1",
		rkev1.OSLabel:                      "linux",
	}
	annotations := map[string]string{
		rkev1.AddressAnnotation: "192.0.2.1",
		rkev1.LabelsAnnotation:  `{"a":"b","cattle.io/os":"linux","node.cluster.x-k8s.io/a":"b","topology.cluster.x-k8s.io/owned":""}`,
		rkev1.TaintsAnnotation:  `[{"key":"k","effect":"NoSchedule"}]`,
	}
	if diff := cmp.Diff(labels, got.bootstrap.Labels); diff != "" {
		t.Errorf("labels of the RKEBootstrap (-want +got):\n%s", diff)
	}
	// Selectors match the Machine's labels. What means something to Cluster API is for the Node only.
	labels["a"] = "b"
	if diff := cmp.Diff(labels, got.machine.Labels); diff != "" {
		t.Errorf("labels of the Machine (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(annotations, got.infra.Annotations); diff != "" {
		t.Errorf("annotations of the CustomMachine (-want +got):\n%s", diff)
	}
	annotations[rkev1.MachineSecretHashAnnotation] = "ff"
	if diff := cmp.Diff(annotations, got.bootstrap.Annotations); diff != "" {
		t.Errorf("annotations of the RKEBootstrap (-want +got):\n%s", diff)
	}
	want := clusterv1.MachineSpec{
		ClusterName: "one",
		Bootstrap: clusterv1.Bootstrap{ConfigRef: clusterv1.ContractVersionedObjectReference{APIGroup: "rke.cattle.io",
			Kind: "RKEBootstrap", Name: "custom-x"}},
		InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: "rke.cattle.io", Kind: "CustomMachine", Name: "custom-x"},
	}
	if diff := cmp.Diff(want, got.machine.Spec); diff != "" {
		t.Errorf("spec of the Machine (-want +got):\n%s", diff)
	}
}
