package machinerequest

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/testenv/fakeclient"
)

// TestRequestLifetime: a request is removed a minute after it was seen, and looked at again at that moment and not before. What another
// clock has dated it does not matter, unless a hub that has ended has left it.
func TestRequestLifetime(t *testing.T) {
	for name, skew := range map[string]time.Duration{
		"one clock": 0, "the hub's is ahead": 5 * time.Minute, "the hub's is behind": -5 * time.Minute,
	} {
		t.Run(name, func(t *testing.T) { testRequestLifetime(t, skew) })
	}
	t.Run("left by a hub that has ended", func(t *testing.T) {
		c, request := newRequest(t)
		clock := clocktesting.NewFakePassiveClock(request.CreationTimestamp.Add(requestLifetime + maxSkew))
		r := &Reconciler{Client: c, Live: c, Clock: clock, requests: c}
		if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(request)}); err != nil {
			t.Fatal(err)
		}
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(request), &corev1.Secret{}); !apierrors.IsNotFound(err) {
			t.Errorf("it still exists: %v", err)
		}
	})
}

// newRequest returns a request that was answered, and an API with it.
func newRequest(t *testing.T) (client.Client, *corev1.Secret) {
	t.Helper()
	scheme := fakeclient.Scheme(t, corev1.AddToScheme)
	begin := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	request := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "c-m-abcdefgh", Name: "custom-0123456789ab", CreationTimestamp: metav1.Time{Time: begin},
			Labels: map[string]string{rkev1.MachineNameLabel: "custom-0123456789ab"},
		},
		Type: rkev1.MachineRequestSecretType,
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(request).Build(), request
}

func testRequestLifetime(t *testing.T, skew time.Duration) {
	c, request := newRequest(t)
	begin := request.CreationTimestamp.Add(skew)
	clock := clocktesting.NewFakePassiveClock(begin)
	r := &Reconciler{Client: c, Live: c, Clock: clock, requests: c}
	for _, tt := range []struct {
		age     time.Duration
		requeue time.Duration
		gone    bool
	}{
		{age: 0, requeue: time.Minute},
		{age: 59 * time.Second, requeue: time.Second},
		{age: time.Minute, gone: true},
		{age: 2 * time.Minute, gone: true},
	} {
		clock.SetTime(begin.Add(tt.age))
		result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(request)})
		if err != nil {
			t.Fatal(err)
		}
		if result.RequeueAfter != tt.requeue {
			t.Errorf("after %s it comes back after %s, want %s", tt.age, result.RequeueAfter, tt.requeue)
		}
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(request), &corev1.Secret{}); apierrors.IsNotFound(err) != tt.gone {
			t.Errorf("after %s: %v, want it gone: %t", tt.age, err, tt.gone)
		}
	}
}

// fixture is a Cluster of provisioning.cattle.io with its management Cluster, and a Cluster API Cluster of its name that was made for it.
func fixture() (*managementv3.Cluster, *provisioningv1.Cluster, *clusterv1.Cluster) {
	management := &managementv3.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "c-m-abcdefgh",
		Labels: map[string]string{rkev1.OwnerClusterNamespaceLabel: "ns", rkev1.OwnerClusterNameLabel: "prod"}}}
	cluster := &provisioningv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "prod",
		Annotations: map[string]string{rkev1.ManagementClusterNameAnnotation: management.Name}},
		Spec: provisioningv1.ClusterSpec{RKEConfig: &provisioningv1.RKEConfig{}}}
	capi := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "prod", OwnerReferences: []metav1.OwnerReference{
		{APIVersion: provisioningv1.GroupVersion.String(), Kind: "Cluster", Name: "prod", UID: "before-a-move"}}}}
	return management, cluster, capi
}

// TestClusterThatTheCacheHasNotSeen: a refusal is final for the machine. The gateway, perhaps of another replica, has seen the cluster,
// that it is not paused any more, and that no other Cluster has its name.
func TestClusterThatTheCacheHasNotSeen(t *testing.T) {
	management, cluster, capi := fixture()
	paused, earlier := capi.DeepCopy(), capi.DeepCopy()
	paused.Spec.Paused, earlier.OwnerReferences = ptr.To(true), nil
	scheme := fakeclient.Scheme(t, managementv3.AddToScheme, provisioningv1.AddToScheme, clusterv1.AddToScheme, rkev1.AddToScheme)
	with := func(objects ...client.Object) client.WithWatch {
		return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
	}
	live := with(management, cluster, capi)
	for _, cached := range []client.Client{with(capi), with(management, cluster, earlier)} {
		r := &Reconciler{Client: cached, Live: live}
		if got, err := r.clusterOf(t.Context(), management.Name); err != nil || got.Name != "prod" {
			t.Errorf("got %v, %v", got, err)
		}
	}
	r := &Reconciler{Client: with(management, cluster, paused), Live: live}
	if _, err := r.clusterOf(t.Context(), management.Name); !errors.Is(err, errWait) {
		t.Errorf("of a paused cluster: %v", err)
	}
}

// TestNameTaken: the registration token of a Cluster lets no machine into a Cluster API Cluster of its name that was made for something
// else. Its control plane would give a server the keys of that cluster.
func TestNameTaken(t *testing.T) {
	begin := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	scheme := fakeclient.Scheme(t, corev1.AddToScheme, managementv3.AddToScheme, provisioningv1.AddToScheme, clusterv1.AddToScheme,
		rkev1.AddToScheme)
	for name, taken := range map[string]bool{"made for the Cluster": false, "made for something else": true} {
		t.Run(name, func(t *testing.T) {
			management, cluster, capi := fixture()
			if taken {
				capi.OwnerReferences = nil
			}
			request := &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Namespace: management.Name, Name: "custom-0123456789ab",
					CreationTimestamp: metav1.Time{Time: begin}},
				Type: rkev1.MachineRequestSecretType,
				Data: map[string][]byte{rkev1.MachineRequestDataKey: []byte(`{"id":["a"],"role-etcd":["true"],"role-control-plane":["true"]}`)},
			}
			c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(management, cluster, capi, request).Build()
			r := &Reconciler{Client: c, Live: c, Clock: clocktesting.NewFakePassiveClock(begin), requests: c}
			if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(request)}); err != nil {
				t.Fatal(err)
			}
			var machines clusterv1.MachineList
			var bootstraps rkev1.RKEBootstrapList
			for _, err := range []error{c.Get(t.Context(), client.ObjectKeyFromObject(request), request), c.List(t.Context(), &machines),
				c.List(t.Context(), &bootstraps)} {
				if err != nil {
					t.Fatal(err)
				}
			}
			refusal := request.Annotations[rkev1.MachineRequestErrorAnnotation]
			if strings.Contains(refusal, "Cluster API Cluster prod exists and was not made for this Cluster") != taken {
				t.Errorf("the answer is %q", refusal)
			}
			if made := len(machines.Items) + len(bootstraps.Items); made > 0 == taken {
				t.Errorf("there are %d objects of the machine", made)
			}
		})
	}
}

// TestQuota: that a quota leaves no room for a machine is in its request, which is not refused.
func TestQuota(t *testing.T) {
	begin := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	scheme := fakeclient.Scheme(t, corev1.AddToScheme, managementv3.AddToScheme, provisioningv1.AddToScheme, clusterv1.AddToScheme,
		rkev1.AddToScheme)
	management, cluster, capi := fixture()
	request := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: management.Name, Name: "custom-0123456789ab", CreationTimestamp: metav1.Time{Time: begin}},
		Type:       rkev1.MachineRequestSecretType,
		Data:       map[string][]byte{rkev1.MachineRequestDataKey: []byte(`{"id":["a"],"role-etcd":["true"],"role-control-plane":["true"]}`)},
	}
	full, patches := apierrors.NewForbidden(schema.GroupResource{Resource: "machines"}, "a", errors.New("exceeded quota: small")), 0
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(management, cluster, capi, request).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error { return full },
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			patches++
			return c.Patch(ctx, o, p, opts...)
		},
	}).Build()
	for range 2 {
		r := &Reconciler{Client: c, Live: c, Clock: clocktesting.NewFakePassiveClock(begin), requests: c}
		if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(request)}); !errors.Is(err, full) {
			t.Fatalf("got %v", err)
		}
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(request), request); err != nil {
		t.Fatal(err)
	}
	if a := request.Annotations; !strings.Contains(a[rkev1.MachineRequestWaitingAnnotation], "exceeded quota") ||
		a[rkev1.MachineRequestErrorAnnotation] != "" || patches != 1 {
		t.Errorf("%d writes: %v", patches, a)
	}
}

// TestMachineIsBeingDeleted: a machine that comes while its Machine is being deleted is not refused, since its installation would end. It
// reads what it waits for, and gets a new Machine afterwards.
func TestMachineIsBeingDeleted(t *testing.T) {
	begin := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	scheme := fakeclient.Scheme(t, corev1.AddToScheme, managementv3.AddToScheme, provisioningv1.AddToScheme, clusterv1.AddToScheme,
		rkev1.AddToScheme)
	management, cluster, capi := fixture()
	request := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: management.Name, Name: "custom-0123456789ab", CreationTimestamp: metav1.Time{Time: begin}},
		Type:       rkev1.MachineRequestSecretType,
		Data:       map[string][]byte{rkev1.MachineRequestDataKey: []byte(`{"id":["a"],"role-worker":["true"]}`)},
	}
	machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: rkev1.MachineRequestName("a"),
		Finalizers: []string{clusterv1.MachineFinalizer}}, Spec: clusterv1.MachineSpec{ClusterName: "prod"}}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(management, cluster, capi, request, machine).Build()
	if err := c.Delete(t.Context(), machine); err != nil {
		t.Fatal(err)
	}
	r := &Reconciler{Client: c, Live: c, Clock: clocktesting.NewFakePassiveClock(begin), requests: c}
	reconcile := func() ctrl.Result {
		t.Helper()
		result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(request)})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(request), request); err != nil {
			t.Fatal(err)
		}
		return result
	}
	result := reconcile()
	a := request.Annotations
	if result.RequeueAfter != againAfter || a[rkev1.MachineRequestErrorAnnotation] != "" ||
		!strings.Contains(a[rkev1.MachineRequestWaitingAnnotation], "Machine "+machine.Name+" of this machine is being deleted") {
		t.Fatalf("it comes back after %s, and says %v", result.RequeueAfter, a)
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(machine), machine); err != nil {
		t.Fatal(err)
	}
	machine.Finalizers = nil
	if err := c.Update(t.Context(), machine); err != nil {
		t.Fatal(err)
	}
	if reconcile(); request.Labels[rkev1.MachineNameLabel] != machine.Name {
		t.Errorf("there is no new Machine: %v, %v", request.Labels, request.Annotations)
	}
}
