package cluster

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/controllers/cluster/pool"
	"github.com/drover-dev/drover/hub/testenv/fakeclient"
	"github.com/drover-dev/drover/hub/util/capicontract"
	"github.com/drover-dev/drover/hub/util/cause"
	"github.com/drover-dev/drover/hub/util/ssa"
)

// TestQuantityPatch: one pool's quantity changes, and only in the Cluster that was looked at.
func TestQuantityPatch(t *testing.T) {
	cluster := testCluster()
	cluster.ResourceVersion = "7"
	cluster.Spec.RKEConfig.MachinePools = []provisioningv1.RKEMachinePool{*poolSpec("a"), *poolSpec("b")}
	patch, err := quantityPatch(cluster, "b", 5)
	if err != nil {
		t.Fatal(err)
	}
	got, err := patch.Data(cluster)
	if err != nil {
		t.Fatal(err)
	}
	want := `[{"op":"replace","path":"/metadata/resourceVersion","value":"7"},{"op":"add","path":"/spec/rkeConfig/machinePools/1/quantity","value":5}]`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestScaleBehindCache: a MachineDeployment is scaled after the hub has written another quantity, and the cache has seen neither.
func TestScaleBehindCache(t *testing.T) {
	deployment := func(applied string, replicas int32) *clusterv1.MachineDeployment {
		md := &clusterv1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "pool",
			Annotations: map[string]string{rkev1.AppliedQuantityAnnotation: applied}}}
		md.Spec.Replicas = &replicas
		return md
	}
	for name, tc := range map[string]struct {
		live *clusterv1.MachineDeployment
		want int32
	}{
		"scaled":          {live: deployment("1", 3), want: 3},
		"not scaled":      {live: deployment("1", 1), want: 1},
		"not yet written": {live: deployment("2", 2), want: 1},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := testCluster()
			spec := poolSpec("a")
			spec.Quantity = new(int32(1))
			cluster.Spec.RKEConfig.MachinePools = []provisioningv1.RKEMachinePool{*spec}
			scheme := fakeclient.Scheme(t, provisioningv1.AddToScheme, clusterv1.AddToScheme)
			c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(cluster, tc.live).Build()
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(cluster), cluster); err != nil {
				t.Fatal(err)
			}
			r := &Reconciler{Client: c, Live: c}
			err := r.writeBackScale(t.Context(), &poolScope{cluster: cluster, spec: spec, deployment: deployment("2", 2)})
			if waits := errors.Is(err, errPoolWaits); err != nil && !waits || waits != (tc.want > 1) {
				t.Errorf("got %v", err)
			}
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(cluster), cluster); err != nil {
				t.Fatal(err)
			}
			if got := *cluster.Spec.RKEConfig.MachinePools[0].Quantity; got != tc.want {
				t.Errorf("the pool has the quantity %d, want %d", got, tc.want)
			}
		})
	}
}

// TestAutoscaledPool: what an autoscaler has asked for is neither written to a pool without a quantity nor taken back.
func TestAutoscaledPool(t *testing.T) {
	cluster, spec := testCluster(), poolSpec("a")
	spec.Quantity, spec.AutoscalingMinSize, spec.AutoscalingMaxSize = nil, new(int32(1)), new(int32(9))
	p := &poolScope{cluster: cluster, spec: spec}
	begins, err := desiredDeployment(p, pool.Templates{})
	if err != nil || *begins.Spec.Replicas != 1 {
		t.Fatalf("a new pool: %+v (%v)", begins, err)
	}
	p.deployment = deployment(7, 7)
	p.deployment.Spec.Replicas = new(int32(7))
	p.deployment.Annotations = map[string]string{rkev1.AppliedQuantityAnnotation: "1"} // of an earlier hub
	if err := (&Reconciler{}).writeBackScale(t.Context(), p); err != nil {
		t.Error(err)
	}
	scaled, err := desiredDeployment(p, pool.Templates{})
	if err != nil || scaled.Spec.Replicas != nil {
		t.Errorf("replicas are applied: %+v (%v)", scaled, err)
	}
	if got := progress(p); got != "" {
		t.Errorf("the pool waits: %s", got)
	}
	p.deployment.Spec.Replicas = new(int32(8))
	if got := progress(p); got != "Pool a: 7 of 8 machines are available" {
		t.Errorf("the pool says %q", got)
	}
	spec.AutoscalingMinSize = new(int32(9))
	if raised, err := desiredDeployment(p, pool.Templates{}); err != nil || raised.Spec.Replicas == nil || *raised.Spec.Replicas != 9 {
		t.Errorf("a higher minimum makes no machines: %+v (%v)", raised, err)
	}
	spec.AutoscalingMinSize, spec.AutoscalingMaxSize = new(int32(1)), new(int32(5))
	if lowered, err := desiredDeployment(p, pool.Templates{}); err != nil || lowered.Spec.Replicas != nil {
		t.Errorf("a lower maximum removes machines: %+v (%v)", lowered, err)
	}
}

// TestUnobservedPool: a pool that has just been changed in place is not up to date because it was before.
func TestUnobservedPool(t *testing.T) {
	p := &poolScope{cluster: testCluster(), spec: poolSpec("a"), deployment: deployment(2, 2)}
	p.deployment.Spec.Replicas = new(int32(2))
	p.deployment.Generation, p.deployment.Status.ObservedGeneration = 3, 2
	for _, want := range []string{"Pool a: waiting for the MachineDeployment to be reconciled", ""} {
		if got := progress(p); got != want {
			t.Errorf("of generation %d the pool says %q, want %q", p.deployment.Status.ObservedGeneration, got, want)
		}
		p.deployment.Status.ObservedGeneration++
	}
}

// TestInvalidLimits: limits that no health check can use keep the health check as it is, and nothing else of the pool.
func TestInvalidLimits(t *testing.T) {
	scheme := fakeclient.Scheme(t, provisioningv1.AddToScheme, clusterv1.AddToScheme)
	cluster, spec := testCluster(), poolSpec("a")
	spec.MachineConfigRef = &provisioningv1.ObjectReference{Kind: "LabConfig", Name: "a"}
	spec.UnhealthyNodeTimeout = &provisioningv1.Duration{Duration: metav1.Duration{Duration: time.Minute}}
	spec.UnhealthyRange = new("[3-1]")
	p := &poolScope{cluster: cluster, spec: spec, deployment: deployment(2, 2)}
	p.deployment.Namespace, p.deployment.Name = cluster.Namespace, pool.Name(cluster.Name, "a")
	valid := *spec
	valid.UnhealthyRange = new("[1-3]")
	check := pool.HealthCheck(cluster, &valid, false)
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(check).Build()
	r := &Reconciler{Client: c, Live: c, ssa: &ssa.Cache{Client: c, FieldOwner: fieldOwner}}
	if err := r.checkPool(t.Context(), p); err != nil || p.problem != nil {
		t.Errorf("the pool as a whole: %+v, %v", p.problem, err)
	}
	if err := r.reconcileHealthCheck(t.Context(), p); err != nil || p.problem == nil || p.problem.Reason != "InvalidMachinePool" ||
		!strings.HasPrefix(p.problem.Message, "spec.rkeConfig.machinePools[a].unhealthyRange is") {
		t.Errorf("the health check: %+v, %v", p.problem, err)
	}
	got := &clusterv1.MachineHealthCheck{}
	err := c.Get(t.Context(), client.ObjectKeyFromObject(check), got)
	if err != nil || got.Spec.Remediation.TriggerIf.UnhealthyInRange != "[1-3]" {
		t.Errorf("it does not stay as it is: %+v, %v", got.Spec, err)
	}
	spec.UnhealthyNodeTimeout, p.problem = nil, nil
	if err = r.reconcileHealthCheck(t.Context(), p); err != nil || p.problem != nil {
		t.Errorf("a pool without a health check: %+v, %v", p.problem, err)
	}
	if err = c.Get(t.Context(), client.ObjectKeyFromObject(check), got); client.IgnoreNotFound(err) != nil || err == nil {
		t.Errorf("its health check is still there: %v", err)
	}
}

// TestFieldsWithoutEffect: a field that nothing acts on is named, beside what is wrong with others, and is no fault.
func TestFieldsWithoutEffect(t *testing.T) {
	cluster := testCluster()
	cluster.Spec.RKEConfig.ETCDSnapshotCreate, cluster.Spec.RKEConfig.RotateCertificates = nil, nil
	says := func(want metav1.ConditionStatus, reason string, invalid ...*cause.Cause) string {
		t.Helper()
		s := scope{cluster: cluster, invalid: invalid}
		setStatus(&s)
		condition := conditions.Get(s.cluster, provisioningv1.RKEClusterCondition)
		if condition.Status != want || condition.Reason != reason {
			t.Errorf("RKECluster is %+v", condition)
		}
		return condition.Message
	}
	if got := says(metav1.ConditionTrue, "Accepted"); got != "" {
		t.Errorf("a spec without such fields is told %q", got)
	}
	p := poolSpec("a")
	p.DynamicSchemaSpec = "{}"
	cluster.Spec.RKEConfig.MachinePools = []provisioningv1.RKEMachinePool{*p}
	const warning = "spec.rkeConfig.machinePools[a].dynamicSchemaSpec has no effect: "
	if got := says(metav1.ConditionTrue, "AcceptedWithWarnings"); !strings.HasPrefix(got, warning) {
		t.Errorf("RKECluster says %q", got)
	}
	if got := says(metav1.ConditionFalse, "UnknownVersion", cause.New("UnknownVersion", "no")); !strings.HasPrefix(got, "no; "+warning) {
		t.Errorf("RKECluster says %q", got)
	}
	cluster.Spec.RKEConfig.MachinePools[0].DynamicSchemaSpec = ""
	cluster.Spec.RKEConfig.MachinePools[0].MaxUnhealthy = new("40%")
	if got := says(metav1.ConditionTrue, "AcceptedWithWarnings"); !strings.Contains(got, "machinePools[a].maxUnhealthy has no effect") {
		t.Errorf("RKECluster says %q", got)
	}
}

// TestProviderKeys: a Cluster is found by all that it refers to, once.
func TestProviderKeys(t *testing.T) {
	cluster := testCluster()
	p := poolSpec("a")
	p.MachineConfigRef = &provisioningv1.ObjectReference{APIVersion: "infrastructure.cluster.x-k8s.io/v1beta1", Kind: "VSphereMachineTemplate",
		Name: "m"}
	other := *p
	other.Name = "b"
	cluster.Spec.RKEConfig.MachinePools = []provisioningv1.RKEMachinePool{*p, other}
	cluster.Spec.RKEConfig.InfrastructureRef = &provisioningv1.ObjectReference{APIVersion: "infrastructure.cluster.x-k8s.io/v1beta1",
		Kind: "VSphereCluster", Name: "c"}
	got := providerKeys(cluster, pool.TemplateRef.String)
	want := []string{"VSphereCluster.infrastructure.cluster.x-k8s.io/c", "VSphereMachineTemplate.infrastructure.cluster.x-k8s.io/m"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("objects (-want +got):\n%s", diff)
	}
	got = providerKeys(cluster, func(ref pool.TemplateRef) string { return capicontract.DefinitionName(ref.GroupKind) })
	want = []string{"vsphereclusters.infrastructure.cluster.x-k8s.io", "vspheremachinetemplates.infrastructure.cluster.x-k8s.io"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("definitions (-want +got):\n%s", diff)
	}
	if got := providerKeys(&provisioningv1.Cluster{}, pool.TemplateRef.String); got != nil {
		t.Errorf("a Cluster that was made elsewhere has %v", got)
	}
}

// TestPoolObjectToCluster: what was made for a pool leads to its Cluster, and nothing else does.
func TestPoolObjectToCluster(t *testing.T) {
	set := &clusterv1.MachineSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Labels: pool.Labels("one", "a")}}
	if got := poolObjectToCluster(context.Background(), set); !slices.Equal(got,
		[]ctrl.Request{{NamespacedName: client.ObjectKey{Namespace: "ns", Name: "one"}}}) {
		t.Errorf("got %v", got)
	}
	delete(set.Labels, rkev1.MachinePoolNameLabel)
	if got := poolObjectToCluster(context.Background(), set); got != nil {
		t.Errorf("a MachineSet of no pool leads to %v", got)
	}
}

// TestKeptTemplates: nothing that was made for a pool is forgotten before it is gone.
func TestKeptTemplates(t *testing.T) {
	md := deployment(1, 1)
	md.Annotations = map[string]string{rkev1.MachineTemplatesAnnotation: "K.g.io/old,K.g.io/older"}
	p := &poolScope{spec: poolSpec("a"), deployment: md}
	current := clusterv1.ContractVersionedObjectReference{APIGroup: "g.io", Kind: "K", Name: "new"}
	var got []string
	for _, ref := range keptTemplates(p, current) {
		got = append(got, ref.String())
	}
	if diff := cmp.Diff([]string{"K.g.io/new", "K.g.io/old", "K.g.io/older"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	md.Spec.Template.Spec.InfrastructureRef = current
	p.sets = []*clusterv1.MachineSet{{Spec: clusterv1.MachineSetSpec{Template: clusterv1.MachineTemplateSpec{Spec: clusterv1.MachineSpec{
		InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: "g.io", Kind: "K", Name: "old"}}}}}}
	used := usedTemplates(p)
	for _, ref := range pool.ParseRefs(md) {
		if slices.Contains(used, ref) != (ref.Name == "old") {
			t.Errorf("template %s is taken for used or unused wrongly", ref)
		}
	}
}
