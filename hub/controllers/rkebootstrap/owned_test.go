package rkebootstrap

import (
	"context"
	"maps"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/testenv/fakeclient"
	"github.com/drover-dev/drover/hub/util/ssa"
)

// TestIdentityAtRest: a reconcile that finds the identity of a machine as it should be makes no request, whatever the agent writes into its
// plan Secret meanwhile. There are several reconciles of each machine in a rollout.
func TestIdentityAtRest(t *testing.T) {
	scheme := fakeclient.Scheme(t, corev1.AddToScheme, rbacv1.AddToScheme, rkev1.AddToScheme)
	writes, reads := 0, 0
	cache := fake.NewClientBuilder().WithScheme(scheme).Build()
	c := interceptor.NewClient(cache, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			writes++
			obj.SetUID(types.UID(obj.GetName())) // as the API server does
			return c.Create(ctx, obj, opts...)
		},
		Apply: func(ctx context.Context, c client.WithWatch, obj runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			writes++
			return c.Apply(ctx, obj, opts...)
		},
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			reads++
			return c.Get(ctx, key, obj, opts...)
		},
	})
	r := &Reconciler{Client: c, Cache: cache, Live: c, ssa: &ssa.Cache{Client: c, FieldOwner: fieldOwner, Metadata: cache}}
	bootstrap, machine := testObjects()
	reconcile := func() {
		t.Helper()
		writes, reads = 0, 0
		s := &scope{bootstrap: bootstrap, machine: machine}
		if err := r.reconcileIdentity(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	change := func(body string) {
		t.Helper()
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: bootstrap.Namespace, Name: rkev1.PlanSecretName(bootstrap.Name)}}
		if err := cache.Patch(t.Context(), secret, client.RawPatch(types.MergePatchType, []byte(body))); err != nil {
			t.Fatal(err)
		}
	}
	if reconcile(); writes != 4 {
		t.Fatalf("the identity was made with %d writes; want two for the plan Secret, one for the ServiceAccount and one for its token", writes)
	}
	if reconcile(); writes+reads > 0 {
		t.Errorf("at rest there are %d writes and %d reads", writes, reads)
	}
	change(`{"data":{"applied-checksum":"MQ=="}}`)
	if reconcile(); writes+reads > 0 {
		t.Errorf("when the agent has reported there are %d writes and %d reads", writes, reads)
	}
	change(`{"metadata":{"labels":{"` + rkev1.MachineNameLabel + `":"another"}}}`)
	if reconcile(); writes != 1 {
		t.Errorf("when a label was changed there are %d writes, want 1", writes)
	}
}

// TestPlanSecretOfWorker: that of a worker is made in one request, and what its RKEBootstrap gets later is removed again with it.
func TestPlanSecretOfWorker(t *testing.T) {
	scheme := fakeclient.Scheme(t, corev1.AddToScheme, rkev1.AddToScheme)
	create := func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
		obj.SetUID(types.UID(obj.GetName())) // as the API server does
		return c.Create(ctx, obj, opts...)
	}
	c, applies := fakeclient.CountApplies(
		fake.NewClientBuilder().WithScheme(scheme).WithInterceptorFuncs(interceptor.Funcs{Create: create}).Build())
	r := &Reconciler{Client: c, Cache: c, Live: c, ssa: &ssa.Cache{Client: c, FieldOwner: fieldOwner, Metadata: c}}
	bootstrap, machine := testObjects()
	bootstrap.Labels = map[string]string{rkev1.WorkerRoleLabel: "true", rkev1.MachinePoolNameLabel: "workers"}
	bootstrap.Annotations = nil
	apply := func(what string, wantApplies int) {
		t.Helper()
		*applies = 0
		want := planSecret(bootstrap, machine, "hash")
		if err := r.applyOwned(t.Context(), bootstrap, want.DeepCopy()); err != nil {
			t.Fatal(err)
		}
		if *applies != wantApplies {
			t.Errorf("%s: %d applies, want %d", what, *applies, wantApplies)
		}
		got := &corev1.Secret{}
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(want), got); err != nil {
			t.Fatal(err)
		}
		if !maps.Equal(got.Labels, want.Labels) || !maps.Equal(got.Annotations, want.Annotations) || !bootstrap.Owns(got) {
			t.Errorf("%s: it has %+v, want %+v", what, got.ObjectMeta, want.ObjectMeta)
		}
	}
	apply("new", 0)
	apply("nothing has changed", 0)
	bootstrap.Labels["mine"], bootstrap.Annotations = "yes", map[string]string{rkev1.LabelsAnnotation: `{"mine":"yes"}`}
	apply("more of the RKEBootstrap", 1)
	delete(bootstrap.Labels, "mine")
	bootstrap.Annotations = nil
	apply("less of the RKEBootstrap", 1)
	bootstrap.Labels["mine"] = "yes"
	if keepsMetadata(planSecret(bootstrap, machine, "")) {
		t.Error("a label of a user counts as one that is never removed")
	}
}

func TestReconcileForgetsDeletedBootstrap(t *testing.T) {
	fakeclient.CheckForget(t, func(c client.WithWatch, cache *ssa.Cache) reconcile.Reconciler {
		return &Reconciler{Client: c, Cache: c, Live: c, ssa: cache, packed: lru.New(1), tokens: lru.New(1)}
	}, rkev1.AddToScheme)
}

// TestDataSecretNameTaken: bootstrap data are not written to a Secret of the RKEBootstrap's name that belongs to somebody else.
func TestDataSecretNameTaken(t *testing.T) {
	scheme := fakeclient.Scheme(t, corev1.AddToScheme, rkev1.AddToScheme, clusterv1.AddToScheme)
	s := &scope{cluster: &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "one"}}}
	s.cluster.Status.Initialization.InfrastructureProvisioned = ptr.To(true)
	s.bootstrap, s.machine = testObjects()
	s.identified = true
	s.machine.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: rkev1.GroupVersion.Group, Kind: "CustomMachine"}
	foreign := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: rkev1.BootstrapSecretName(s.bootstrap.Name)},
		Data:       map[string][]byte{"theirs": []byte("1")},
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(foreign).Build()
	r := &Reconciler{Client: c, Cache: c, Live: c, ssa: &ssa.Cache{Client: c, FieldOwner: fieldOwner, Metadata: c}, packed: lru.New(1)}
	err := r.reconcileData(t.Context(), s)
	if err == nil || s.data == nil || s.data.Reason != "NameTaken" || !strings.Contains(s.data.Message, "Secret ns/"+foreign.Name) {
		t.Errorf("got %v and %+v", err, s.data)
	}
	found := &corev1.Secret{}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(foreign), found); err != nil || len(found.Data) != 1 ||
		len(found.OwnerReferences) != 0 {
		t.Errorf("the Secret was changed: it has %d keys and the owners %v (%v)", len(found.Data), found.OwnerReferences, err)
	}
	if err := c.Delete(t.Context(), found); err != nil {
		t.Fatal(err)
	}
	s.data = nil
	if err := r.reconcileData(t.Context(), s); err != nil || s.data != nil {
		t.Fatalf("got %v and %+v", err, s.data)
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(foreign), found); err != nil || !s.bootstrap.Owns(found) ||
		len(found.Data["value"]) == 0 {
		t.Errorf("the Secret has the owners %v and %d bytes (%v)", found.OwnerReferences, len(found.Data["value"]), err)
	}
}
