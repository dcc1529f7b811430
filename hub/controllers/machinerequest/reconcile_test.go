package machinerequest

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

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
