package cluster

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	"github.com/drover-dev/drover/hub/testenv/fakeclient"
	"github.com/drover-dev/drover/hub/util/pace"
	"github.com/drover-dev/drover/hub/util/ssa"
)

func TestReconcileForgetsDeletedCluster(t *testing.T) {
	fakeclient.CheckForget(t, func(c client.WithWatch, cache *ssa.Cache) reconcile.Reconciler {
		return &Reconciler{Client: c, Live: c, ssa: cache}
	}, provisioningv1.AddToScheme, managementv3.AddToScheme)
}

// TestPaced: events of a Cluster are held back only where those of Cluster API's are, and it has not changed itself.
func TestPaced(t *testing.T) {
	meta := metav1.ObjectMeta{Namespace: "fleet", Name: "c", Generation: 2}
	capi := &clusterv1.Cluster{ObjectMeta: meta, Status: clusterv1.ClusterStatus{ObservedGeneration: 2,
		Conditions:     []metav1.Condition{{Type: clusterv1.PausedCondition, Status: metav1.ConditionFalse}},
		Initialization: clusterv1.ClusterInitializationStatus{ControlPlaneInitialized: new(true)},
		Workers:        &clusterv1.WorkersStatus{Replicas: new(int32(9))}}}
	for name, tc := range map[string]struct {
		observed int64
		paused   metav1.ConditionStatus
		capi     bool
		want     pace.Object
	}{
		"steady":                {2, metav1.ConditionFalse, true, pace.Object{Machines: 9, Steady: true}},
		"changed":               {1, metav1.ConditionFalse, true, pace.Object{Machines: 9}},
		"paused":                {2, metav1.ConditionTrue, true, pace.Object{Machines: 9}},
		"without Cluster API's": {2, metav1.ConditionFalse, false, pace.Object{}},
	} {
		cluster := &provisioningv1.Cluster{ObjectMeta: meta, Status: provisioningv1.ClusterStatus{ObservedGeneration: tc.observed}}
		cluster.SetConditions([]metav1.Condition{{Type: clusterv1.PausedCondition, Status: tc.paused}})
		objects := []client.Object{cluster}
		if tc.capi {
			objects = append(objects, capi)
		}
		scheme := fakeclient.Scheme(t, provisioningv1.AddToScheme, clusterv1.AddToScheme)
		look := paced(fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build())
		tc.want.Metadata = pace.Metadata(cluster)
		if got, ok := look(client.ObjectKeyFromObject(cluster)); got != tc.want || !ok {
			t.Errorf("%s: %+v, %t", name, got, ok)
		}
		if _, ok := look(client.ObjectKey{Namespace: "fleet", Name: "gone"}); ok {
			t.Errorf("%s: a Cluster that is gone exists", name)
		}
	}
}
