package cluster

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/controllers/cluster/pool"
	"github.com/drover-dev/drover/hub/testenv/fakeclient"
	"github.com/drover-dev/drover/hub/util/apierrors"
	"github.com/drover-dev/drover/hub/util/cause"
	"github.com/drover-dev/drover/hub/util/ssa"
)

// changedCluster is a Cluster whose spec has changed since it was last looked at.
func changedCluster() *provisioningv1.Cluster {
	cluster := testCluster()
	for _, conditionType := range []string{provisioningv1.RKEClusterCondition, provisioningv1.MachinePoolsReadyCondition,
		provisioningv1.UpdatedCondition} {
		conditions.Set(cluster, metav1.Condition{Type: conditionType, Status: metav1.ConditionTrue, Reason: "Known"})
	}
	cluster.Generation, cluster.Status.ObservedGeneration = 2, 1
	return cluster
}

// updatedControlPlane is an RKEControlPlane that has all of the spec that was passed on before.
func updatedControlPlane() *rkev1.RKEControlPlane {
	controlPlane := &rkev1.RKEControlPlane{}
	for _, conditionType := range []string{rkev1.ReadyCondition, rkev1.UpdatedCondition} {
		conditions.Set(controlPlane, metav1.Condition{Type: conditionType, Status: metav1.ConditionTrue, Reason: conditionType})
	}
	return controlPlane
}

// said is what a Cluster says of its spec.
func said(cluster *provisioningv1.Cluster) map[string]string {
	out := map[string]string{}
	for _, conditionType := range []string{provisioningv1.RKEClusterCondition, provisioningv1.MachinePoolsReadyCondition,
		provisioningv1.UpdatedCondition} {
		if c := conditions.Get(cluster, conditionType); c != nil {
			out[conditionType] = string(c.Status) + "/" + c.Reason
		}
	}
	return out
}

// TestNotPassedOn: a spec that the hub could not pass on is neither accepted nor on any machine. A conflict, after which it is passed on at
// once, changes nothing of what is known.
func TestNotPassedOn(t *testing.T) {
	resource := rkev1.GroupVersion.WithResource("rkecontrolplanes").GroupResource()
	outage := kerrors.NewInternalError(errors.New("the webhook does not answer"))
	for name, tc := range map[string]struct {
		err      error
		before   int64
		want     string
		observed int64
	}{
		"a conflict":                    {kerrors.NewConflict(resource, "one", errors.New("changed")), 1, "True/Known", 1},
		"a policy":                      {kerrors.NewForbidden(resource, "one", errors.New("no")), 1, "False/Error", 2},
		"a policy, of the same spec":    {kerrors.NewForbidden(resource, "one", errors.New("no")), 2, "False/Error", 2},
		"an outage":                     {outage, 1, "False/Error", 2},
		"an outage, after a hub starts": {outage, 2, "True/Known", 2},
	} {
		scheme := fakeclient.Scheme(t, provisioningv1.AddToScheme, rkev1.AddToScheme, clusterv1.AddToScheme, managementv3.AddToScheme,
			corev1.AddToScheme, metav1.AddMetaToScheme)
		c := fake.NewClientBuilder().WithScheme(scheme).WithInterceptorFuncs(interceptor.Funcs{
			Apply: func(context.Context, client.WithWatch, runtime.ApplyConfiguration, ...client.ApplyOption) error {
				return tc.err
			},
		}).Build()
		r := &Reconciler{Client: c, Live: c, ssa: &ssa.Cache{Client: c, FieldOwner: fieldOwner}}
		s := &scope{cluster: changedCluster(), management: &managementv3.Cluster{}, controlPlane: updatedControlPlane()}
		s.cluster.Status.ObservedGeneration = tc.before
		if err := s.run(t.Context(), r.reconcileSpec, r.reconcileClusterAPI); !errors.Is(err, tc.err) {
			t.Errorf("%s: the error is %v", name, err)
		}
		s.unread.pools = true // as where no pool was looked at
		setStatus(s)
		want := map[string]string{"RKECluster": tc.want, "MachinePoolsReady": "True/Known", "Updated": tc.want}
		if diff := cmp.Diff(want, said(s.cluster)); diff != "" || s.cluster.Status.ObservedGeneration != tc.observed {
			t.Errorf("%s: generation %d (-want +got):\n%s", name, s.cluster.Status.ObservedGeneration, diff)
		}
	}
	s := &scope{cluster: changedCluster(), controlPlane: updatedControlPlane(), created: cause.New("NameTaken", "taken"),
		unread: unread{pools: true}}
	setStatus(s)
	if got := said(s.cluster)["Updated"]; got != "False/NameTaken" {
		t.Errorf("without a management Cluster, Updated is %s", got)
	}
}

// TestClusterAPIDeleted: while the Cluster API Cluster is being deleted, what it refers to is not created again, which would keep it from
// being deleted for ever.
func TestClusterAPIDeleted(t *testing.T) {
	scheme := fakeclient.Scheme(t, provisioningv1.AddToScheme, rkev1.AddToScheme, clusterv1.AddToScheme)
	c, requests := fakeclient.CountApplies(fake.NewClientBuilder().WithScheme(scheme).Build())
	r := &Reconciler{Client: c, Live: c, ssa: &ssa.Cache{Client: c, FieldOwner: fieldOwner}}
	s := &scope{cluster: changedCluster(), management: &managementv3.Cluster{}, capiCluster: &clusterv1.Cluster{}}
	s.capiCluster.DeletionTimestamp = new(metav1.Now())
	if err := s.run(t.Context(), r.reconcileClusterAPI, r.reconcilePools); err != nil || *requests > 0 || s.passedOn {
		t.Fatalf("%d requests, passed on: %t (%v)", *requests, s.passedOn, err)
	}
	setStatus(s)
	for _, conditionType := range []string{provisioningv1.RKEClusterCondition, provisioningv1.UpdatedCondition} {
		if got := said(s.cluster)[conditionType]; got != "False/WaitingForClusterAPI" {
			t.Errorf("%s is %s", conditionType, got)
		}
	}
}

// TestConflictOfPool: a pool that a conflict has left as it was says nothing of the spec of now.
func TestConflictOfPool(t *testing.T) {
	spec := poolSpec("a")
	spec.WorkerRole, spec.MachineConfigRef = true, &provisioningv1.ObjectReference{APIVersion: "infrastructure.cluster.x-k8s.io/v1beta2",
		Kind: "TestMachineTemplate", Name: "m"}
	cluster := changedCluster()
	cluster.Spec.RKEConfig.MachinePools = []provisioningv1.RKEMachinePool{*spec}
	md := deployment(2, 2)
	md.ObjectMeta = metav1.ObjectMeta{Namespace: cluster.Namespace, Name: pool.Name(cluster.Name, "a"), Labels: pool.Labels(cluster.Name, "a"),
		Annotations:     map[string]string{rkev1.AppliedQuantityAnnotation: "2"},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(cluster, provisioningv1.GroupVersion.WithKind("Cluster"))}}
	md.Spec.Replicas = new(int32(3)) // somebody has scaled it
	scheme := fakeclient.Scheme(t, provisioningv1.AddToScheme, rkev1.AddToScheme, clusterv1.AddToScheme)
	conflict := kerrors.NewConflict(provisioningv1.GroupVersion.WithResource("clusters").GroupResource(), "one", errors.New("changed"))
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(md).WithInterceptorFuncs(interceptor.Funcs{
		Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
			return conflict
		},
	}).Build()
	s := &scope{cluster: cluster, management: &managementv3.Cluster{}, controlPlane: updatedControlPlane(), passedOn: true}
	if err := (&Reconciler{Client: c, Live: c}).reconcilePools(t.Context(), s); !apierrors.IsRace(err) {
		t.Fatalf("got %v, want a conflict", err)
	}
	known := said(cluster)
	setStatus(s)
	if diff := cmp.Diff(known, said(cluster)); diff != "" || cluster.Status.ObservedGeneration != 1 {
		t.Errorf("generation %d (-known +reported):\n%s", cluster.Status.ObservedGeneration, diff)
	}
}
