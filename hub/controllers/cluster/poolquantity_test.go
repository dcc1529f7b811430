package cluster

import (
	"errors"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/testenv/fakeclient"
)

// etcdPool is a pool with etcd of a cluster that was started, whose MachineDeployment has these replicas.
func etcdPool(quantity, replicas int32) *poolScope {
	cluster, spec := testCluster(), poolSpec("servers")
	spec.EtcdRole, spec.Quantity = true, &quantity
	spec.MachineConfigRef = &provisioningv1.ObjectReference{APIVersion: "infrastructure.cluster.x-k8s.io/v1beta2",
		Kind: "TestMachineTemplate", Name: "m"}
	other := spec.DeepCopy()
	other.Name, other.EtcdRole, other.Quantity = "other", false, new(int32(1))
	cluster.Spec.RKEConfig.MachinePools = []provisioningv1.RKEMachinePool{*spec, *other}
	md := &clusterv1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: "one-servers",
		Annotations: map[string]string{rkev1.AppliedQuantityAnnotation: "3"}}}
	md.Spec.Replicas, md.Spec.Template.Labels = &replicas, map[string]string{rkev1.EtcdRoleLabel: "true"}
	return &poolScope{cluster: cluster, spec: &cluster.Spec.RKEConfig.MachinePools[0], deployment: md, started: true,
		deployments: map[string]*clusterv1.MachineDeployment{"one-servers": md}}
}

// TestQuantityOfTheLastEtcd: a pool is not scaled to 0 in its spec if the data of the cluster would be deleted with its machines.
func TestQuantityOfTheLastEtcd(t *testing.T) {
	scheme := fakeclient.Scheme(t, provisioningv1.AddToScheme, clusterv1.AddToScheme)
	custom := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet-default", Name: "custom",
		Labels: map[string]string{clusterv1.ClusterNameLabel: "one", rkev1.EtcdRoleLabel: "true"}}}
	otherHasEtcd := func(p *poolScope) { p.cluster.Spec.RKEConfig.MachinePools[1].EtcdRole = true }
	for name, tc := range map[string]struct {
		change  func(*poolScope)
		machine *clusterv1.Machine
		stays   bool
	}{
		"the last one": {stays: true},
		"another pool": {change: func(p *poolScope) {
			otherHasEtcd(p)
			p.deployments["one-other"] = &clusterv1.MachineDeployment{}
		}},
		"another pool, of 0 machines, too": {stays: true, change: func(p *poolScope) {
			otherHasEtcd(p)
			p.cluster.Spec.RKEConfig.MachinePools[1].Quantity = new(int32(0))
			p.deployments["one-other"] = &clusterv1.MachineDeployment{}
		}},
		"another pool that cannot be created": {change: otherHasEtcd, stays: true},
		"another pool that has no machines yet": {stays: true, change: func(p *poolScope) {
			otherHasEtcd(p)
			p.deployments["one-other"] = &clusterv1.MachineDeployment{Spec: clusterv1.MachineDeploymentSpec{Replicas: new(int32(0))}}
		}},
		"a custom machine":              {machine: custom},
		"the cluster was never started": {change: func(p *poolScope) { p.started = false }},
		"without machines":              {change: func(p *poolScope) { p.deployment.Spec.Replicas = new(int32(0)) }},
		"workers": {change: func(p *poolScope) {
			p.spec.EtcdRole, p.deployment.Spec.Template.Labels = false, nil
		}},
		"fewer machines": {change: func(p *poolScope) { p.spec.Quantity = new(int32(1)) }},
	} {
		p, objects := etcdPool(0, 3), fake.NewClientBuilder().WithScheme(scheme)
		if tc.change != nil {
			tc.change(p)
		}
		if tc.machine != nil {
			objects.WithObjects(tc.machine.DeepCopy())
		}
		err := (&Reconciler{Client: objects.Build()}).checkPool(t.Context(), p)
		if stays := errors.Is(err, errPoolWaits); err != nil && !stays || stays != tc.stays || (p.problem != nil) != tc.stays {
			t.Errorf("%s: got %v, and the problem %+v", name, err, p.problem)
		}
		if p.problem != nil && !strings.HasPrefix(p.problem.Message, "spec.rkeConfig.machinePools[servers].quantity is 0: no other machine") {
			t.Errorf("%s: got %q", name, p.problem.Message)
		}
	}
}

// TestScaleOfTheLastEtcd: a MachineDeployment that is scaled to 0 asks for its machines again if no others have etcd.
func TestScaleOfTheLastEtcd(t *testing.T) {
	for _, started := range []bool{true, false} {
		p := etcdPool(3, 0)
		p.started = started
		scheme := fakeclient.Scheme(t, provisioningv1.AddToScheme, clusterv1.AddToScheme)
		c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(p.cluster, p.deployment).Build()
		stored := &provisioningv1.Cluster{}
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(p.cluster), stored); err != nil {
			t.Fatal(err)
		}
		p.cluster, p.spec = stored, &stored.Spec.RKEConfig.MachinePools[0]
		err := (&Reconciler{Client: c, Live: c}).writeBackScale(t.Context(), p)
		if waits := errors.Is(err, errPoolWaits); err != nil && !waits || waits == started {
			t.Errorf("started %t: got %v", started, err)
		}
		after := &provisioningv1.Cluster{}
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(p.cluster), after); err != nil {
			t.Fatal(err)
		}
		if got := *after.Spec.RKEConfig.MachinePools[0].Quantity; (got == 3) != started {
			t.Errorf("started %t: the pool has the quantity %d", started, got)
		}
	}
}
