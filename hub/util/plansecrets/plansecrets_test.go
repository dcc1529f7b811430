package plansecrets

import (
	"maps"
	"slices"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/plans"
)

// of is a Secret with the label of a cluster.
func of(cluster, namespace, name string, secretType corev1.SecretType) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name,
		Labels: map[string]string{rkev1.ClusterNameLabel: cluster}}, Type: secretType}
}

// TestOfCluster: other Secrets of the cluster, and plan Secrets of others, are not its plan Secrets.
func TestOfCluster(t *testing.T) {
	c := fake.NewClientBuilder().WithObjects(
		of("c", "ns", "a-machine-plan", rkev1.MachinePlanSecretType), of("c", "ns", "b-machine-plan", rkev1.MachinePlanSecretType),
		of("c", "ns", "state", rkev1.ClusterStateSecretType), of("d", "ns", "d-machine-plan", rkev1.MachinePlanSecretType),
		of("c", "other", "a-machine-plan", rkev1.MachinePlanSecretType),
	).Build()
	byName, err := ByName(t.Context(), c, client.ObjectKey{Namespace: "ns", Name: "c"})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"a-machine-plan", "b-machine-plan"}, slices.Sorted(maps.Keys(byName))); diff != "" {
		t.Errorf("the names differ (-want +got):\n%s", diff)
	}
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c"}}
	isB := func(object client.Object) bool { return object.GetName() == "b-machine-plan" }
	requests := ClusterToPlanSecrets(c, isB)(t.Context(), cluster)
	if len(requests) != 1 || requests[0].Name != "b-machine-plan" {
		t.Errorf("the Cluster is mapped to %v", requests)
	}
	controlPlane := &rkev1.RKEControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "control-plane"}}
	if requests := ControlPlaneToPlanSecrets(c, IsPlanSecret)(t.Context(), controlPlane); len(requests) != 0 {
		t.Errorf("an RKEControlPlane without a Cluster is mapped to %v", requests)
	}
	controlPlane.Labels = map[string]string{clusterv1.ClusterNameLabel: "c"}
	requests = ControlPlaneToPlanSecrets(c, isB)(t.Context(), controlPlane)
	if len(requests) != 1 || requests[0].Name != "b-machine-plan" {
		t.Errorf("the RKEControlPlane is mapped to %v", requests)
	}
}

// TestOf: a Secret counts as a machine's by its owner, not by its name.
func TestOf(t *testing.T) {
	bootstrap := &rkev1.RKEBootstrap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a", UID: "uid"}}
	owner := metav1.OwnerReference{APIVersion: rkev1.GroupVersion.String(), Kind: "RKEBootstrap", Name: "a", UID: "uid"}
	earlier := owner
	earlier.UID = "earlier"
	for name, test := range map[string]struct {
		bootstrap *rkev1.RKEBootstrap
		owners    []metav1.OwnerReference
		want      bool
	}{
		"its own":                    {bootstrap, []metav1.OwnerReference{owner}, true},
		"by name alone":              {bootstrap, nil, false},
		"of an earlier RKEBootstrap": {bootstrap, []metav1.OwnerReference{earlier}, false},
		"no RKEBootstrap":            {nil, []metav1.OwnerReference{owner}, false},
		"an empty RKEBootstrap":      {&rkev1.RKEBootstrap{}, []metav1.OwnerReference{owner}, false},
	} {
		t.Run(name, func(t *testing.T) {
			secret := of("c", "ns", rkev1.PlanSecretName("a"), rkev1.MachinePlanSecretType)
			secret.OwnerReferences = test.owners
			if got := Of(test.bootstrap, map[string]*corev1.Secret{secret.Name: secret}); (got != nil) != test.want {
				t.Errorf("got %v", got)
			}
		})
	}
}

// TestHoldOnce: an applied plan takes no memory of its own while it is the wanted one.
func TestHoldOnce(t *testing.T) {
	for _, tc := range []struct {
		plan, applied string
		once          bool
	}{{"plan", "plan", true}, {"plan", "other", false}, {"plan", "", false}, {"", "plan", false}, {"", "", false}} {
		secret := &corev1.Secret{Data: map[string][]byte{plans.KeyPlan: []byte(tc.plan), plans.KeyAppliedPlan: []byte(tc.applied)}}
		HoldOnce(secret)
		plan, applied := secret.Data[plans.KeyPlan], secret.Data[plans.KeyAppliedPlan]
		shared := len(plan) > 0 && unsafe.SliceData(plan) == unsafe.SliceData(applied)
		if string(plan) != tc.plan || string(applied) != tc.applied || shared != tc.once {
			t.Errorf("%+v: %q, %q", tc, plan, applied)
		}
	}
	HoldOnce(&corev1.Secret{})
}
