package machinerequest

import (
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/testenv/fakeclient"
)

// TestRequestLifetime: a request is removed when it is a minute old, and looked at again at that moment and not before.
func TestRequestLifetime(t *testing.T) {
	scheme := fakeclient.Scheme(t, corev1.AddToScheme)
	begin := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	request := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "c-m-abcdefgh", Name: "custom-0123456789ab", CreationTimestamp: metav1.Time{Time: begin},
			Labels: map[string]string{rkev1.MachineNameLabel: "custom-0123456789ab"},
		},
		Type: rkev1.MachineRequestSecretType,
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(request).Build()
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
		r := &Reconciler{Client: c, Live: c, Clock: clocktesting.NewFakePassiveClock(begin.Add(tt.age)), requests: c}
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

// TestClusterThatTheCacheHasNotSeen: a refusal is final for the machine. The gateway, perhaps of another replica, has seen the cluster, and
// that it is not paused any more.
func TestClusterThatTheCacheHasNotSeen(t *testing.T) {
	management := &managementv3.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "c-m-abcdefgh",
		Labels: map[string]string{rkev1.OwnerClusterNamespaceLabel: "ns", rkev1.OwnerClusterNameLabel: "prod"}}}
	cluster := &provisioningv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "prod",
		Annotations: map[string]string{rkev1.ManagementClusterNameAnnotation: management.Name}}}
	capi := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "prod"}}
	paused := capi.DeepCopy()
	paused.Spec.Paused = ptr.To(true)
	scheme := fakeclient.Scheme(t, managementv3.AddToScheme, provisioningv1.AddToScheme, clusterv1.AddToScheme, rkev1.AddToScheme)
	with := func(objects ...client.Object) client.WithWatch {
		return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
	}
	live := with(management, cluster, capi)
	r := &Reconciler{Client: with(capi), Live: live}
	if got, err := r.clusterOf(t.Context(), management.Name); err != nil || got.Name != "prod" {
		t.Errorf("got %v, %v", got, err)
	}
	r.Client = with(management, cluster, paused)
	if _, err := r.clusterOf(t.Context(), management.Name); !errors.Is(err, errWait) {
		t.Errorf("of a paused cluster: %v", err)
	}
}
