package dryrun

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/plan/preview"
)

func withPools(pools ...machinePool) *target {
	return &target{cluster: &provisioningv1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "demo"},
		Spec:       provisioningv1.ClusterSpec{RKEConfig: &provisioningv1.RKEConfig{MachinePools: pools}},
	}}
}

func newPool(change func(*machinePool)) machinePool {
	p := machinePool{
		Name: "w", WorkerRole: true, Quantity: ptr.To[int32](2), Labels: map[string]string{"zone": "a"},
		MachineConfigRef: &provisioningv1.ObjectReference{Kind: "LabMachineTemplate", Name: "small"},
	}
	if change != nil {
		change(&p)
	}
	return p
}

func TestPools(t *testing.T) {
	const replaced = ": Cluster API makes new machines and deletes the old ones, with at most "
	servers, other := func(p *machinePool) { p.EtcdRole = true }, func(p *machinePool) { p.Name = "other" }
	limits := func(p *machinePool) { p.AutoscalingMinSize, p.AutoscalingMaxSize = ptr.To[int32](1), ptr.To[int32](5) }
	tests := []struct {
		name          string
		before, after *target
		want          []preview.Pool
	}{
		{name: "nothing", before: withPools(newPool(nil)), after: withPools(newPool(nil))},
		{name: "a cluster that was written for Cluster API", before: &target{}, after: &target{}},
		{
			name: "a new cluster", after: withPools(newPool(nil)),
			want: []preview.Pool{{Name: "w", Impact: "install", Notes: []string{"the pool is new: 2 machines are made"}}},
		},
		{
			name: "a pool is removed", before: withPools(newPool(nil)), after: withPools(),
			want: []preview.Pool{{Name: "w", Impact: "remove", Notes: []string{"the pool is removed, with all of its machines"}}},
		},
		{
			name: "the last pool with etcd is removed", before: withPools(newPool(servers)), after: withPools(newPool(other)),
			want: []preview.Pool{
				{Name: "other", Impact: "install", Notes: []string{"the pool is new: 2 machines are made"}},
				{Name: "w", Impact: "remove", Notes: []string{"the pool is removed, with all of its machines", keepsEtcd}},
			},
		},
		{
			name: "the last pool with etcd gets no machines", before: withPools(newPool(servers)),
			after: withPools(newPool(func(p *machinePool) { servers(p); *p.Quantity = 0 })),
			want: []preview.Pool{{Name: "w", Impact: "none", Notes: []string{
				"quantity goes from 2 to 0: 2 machines are deleted, the oldest first", keepsEtcd}}},
		},
		{
			name: "others have etcd", before: withPools(newPool(servers)),
			after: withPools(newPool(func(p *machinePool) { servers(p); other(p) })),
			want: []preview.Pool{
				{Name: "other", Impact: "install", Notes: []string{"the pool is new: 2 machines are made"}},
				{Name: "w", Impact: "remove", Notes: []string{"the pool is removed, with all of its machines"}},
			},
		},
		{
			name: "another template", before: withPools(newPool(nil)),
			after: withPools(newPool(func(p *machinePool) { p.MachineConfigRef.Name = "big" })),
			want: []preview.Pool{{Name: "w", Impact: "replace", Notes: []string{
				"machineConfigRef changes from LabMachineTemplate small to LabMachineTemplate big" + replaced +
					"1 more than there should be and 0 fewer",
			}}},
		},
		{
			name: "other user data, at another pace", before: withPools(newPool(nil)),
			after: withPools(newPool(func(p *machinePool) {
				p.Userdata = &rkev1.Userdata{InlineUserdata: "a: b"}
				p.RollingUpdate = &provisioningv1.RKEMachinePoolRollingUpdate{MaxUnavailable: ptr.To(intstr.FromString("50%"))}
			})),
			want: []preview.Pool{{Name: "w", Impact: "replace", Notes: []string{
				"userdata changes" + replaced + "1 more than there should be and 50% fewer",
				"rollingUpdate: a change that touches no machine that is there",
			}}},
		},
		{
			name: "fewer", before: withPools(newPool(nil)), after: withPools(newPool(func(p *machinePool) { p.Quantity = nil })),
			want: []preview.Pool{{Name: "w", Impact: "none", Notes: []string{"quantity goes from 2 to 1: 1 machine is deleted, the oldest first"}}},
		},
		{
			name: "more", before: withPools(newPool(nil)), after: withPools(newPool(func(p *machinePool) { *p.Quantity = 4 })),
			want: []preview.Pool{{Name: "w", Impact: "none", Notes: []string{"quantity goes from 2 to 4: 2 machines are made"}}},
		},
		{
			name: "left to an autoscaler", before: withPools(newPool(limits)),
			after: withPools(newPool(func(p *machinePool) { limits(p); p.Quantity = nil })),
		},
		{
			name:   "not left to an autoscaler any more",
			before: withPools(newPool(func(p *machinePool) { limits(p); p.Quantity = nil })), after: withPools(newPool(limits)),
			want: []preview.Pool{{Name: "w", Impact: "none", Notes: []string{
				"quantity becomes 2, however many machines the autoscaler has asked for"}}},
		},
		{
			name:   "without the limits of an autoscaler",
			before: withPools(newPool(func(p *machinePool) { limits(p); p.Quantity = nil })),
			after:  withPools(newPool(func(p *machinePool) { p.Quantity = nil })),
			want: []preview.Pool{{Name: "w", Impact: "none", Notes: []string{
				"autoscalingMaxSize, autoscalingMinSize: a change that touches no machine that is there"}}},
		},
		{
			name: "another role", before: withPools(newPool(nil)),
			after: withPools(newPool(func(p *machinePool) { p.ControlPlaneRole, p.Paused = true, true })),
			want: []preview.Pool{{Name: "w", Impact: "none", Notes: []string{
				"controlPlaneRole cannot be changed: the pool stays as it is", "paused: a change that touches no machine that is there",
			}}},
		},
		{
			name: "workers, too", before: withPools(newPool(func(p *machinePool) { p.EtcdRole, p.WorkerRole = true, false })),
			after: withPools(newPool(func(p *machinePool) { p.EtcdRole = true })),
			want: []preview.Pool{{Name: "w", Impact: "none", Notes: []string{
				"workerRole changes what the machines that are there are for",
			}}},
		},
		{name: "labels are told with the machines", before: withPools(newPool(nil)),
			after: withPools(newPool(func(p *machinePool) { p.Labels = nil }))},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, pools(test.before, test.after)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// TestEdits: labels of a pool reach its machines as Cluster API carries them, and no others.
func TestEdits(t *testing.T) {
	before := withPools(newPool(nil))
	after := withPools(newPool(func(p *machinePool) {
		p.Labels = map[string]string{"disk": "ssd"}
		p.Taints = []corev1.Taint{{Key: "dedicated", Value: "x", Effect: corev1.TaintEffectNoSchedule}}
	}))
	edit, err := poolEdit(before, after)
	if err != nil {
		t.Fatal(err)
	}
	machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{rkev1.MachinePoolNameLabel: "w", "zone": "a",
		"by-others": "x"}}}
	edit.apply(machine)
	for key, want := range map[string]string{"disk": "ssd", "by-others": "x", rkev1.MachinePoolNameLabel: "w", "zone": ""} {
		if got := machine.Labels[key]; got != want {
			t.Errorf("label %s is %q, want %q", key, got, want)
		}
	}
	if got := machine.Annotations[rkev1.LabelsAnnotation]; got != `{"disk":"ssd"}` {
		t.Errorf("the labels for the Node are %s", got)
	}
	other := &rkev1.RKEBootstrap{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{rkev1.MachinePoolNameLabel: "x", "zone": "a"}}}
	edit.apply(other)
	if other.Labels["zone"] != "a" || len(other.Annotations) > 0 {
		t.Errorf("a machine of another pool got %v and %v", other.Labels, other.Annotations)
	}
	change := edit["w"]
	if diff := cmp.Diff(map[string]string{"dedicated": "x:NoSchedule"}, taints(change.is)); diff != "" {
		t.Errorf("taints: -want +got:\n%s", diff)
	}
}
