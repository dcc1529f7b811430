package objects

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/drover-dev/drover/hub/testenv/fakeclient"
)

func TestObjects(t *testing.T) {
	scheme := fakeclient.Scheme(t, corev1.AddToScheme)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "one"}}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(secret).Build()
	key := client.ObjectKeyFromObject(secret)
	if found, err := Get(t.Context(), c, key, &corev1.Secret{}); !found || err != nil {
		t.Errorf("got %v, %v", found, err)
	}
	if got := List(t.Context(), c, &corev1.SecretList{}, client.InNamespace("ns")); len(got) != 1 || got[0].NamespacedName != key {
		t.Errorf("got %v", got)
	}
	for range 2 {
		if err := Delete(t.Context(), c, secret); err != nil {
			t.Error(err)
		}
	}
	if found, err := Get(t.Context(), c, key, &corev1.Secret{}); found || err != nil {
		t.Errorf("got %v, %v", found, err)
	}
	failing := interceptor.NewClient(c, interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return errors.New("busy")
		},
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			return errors.New("busy")
		},
	})
	if _, err := Get(t.Context(), failing, key, &corev1.Secret{}); err == nil || err.Error() != "reading Secret ns/one: busy" {
		t.Errorf("got %v", err)
	}
	if _, err := Get(t.Context(), failing, client.ObjectKey{Name: "one"}, &corev1.Namespace{}); err == nil ||
		err.Error() != "reading Namespace one: busy" {
		t.Errorf("got %v", err)
	}
	if got := List(t.Context(), failing, &corev1.SecretList{}); len(got) != 0 {
		t.Errorf("got %v", got)
	}
}

// TestEnsureNamespace: a namespace that exists is enough, whatever a creation ends with. An API server without room answers each with an
// error of its database.
func TestEnsureNamespace(t *testing.T) {
	full := errors.New("etcdserver: mvcc: database space exceeded")
	c := fake.NewClientBuilder().WithScheme(fakeclient.Scheme(t, corev1.AddToScheme)).Build()
	failing := interceptor.NewClient(c, interceptor.Funcs{
		Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error { return full },
	})
	if err := EnsureNamespace(t.Context(), failing, "drover-system"); !errors.Is(err, full) {
		t.Errorf("it does not exist and cannot be created: %v", err)
	}
	for range 2 {
		if err := EnsureNamespace(t.Context(), c, "drover-system"); err != nil {
			t.Error(err)
		}
	}
	if err := EnsureNamespace(t.Context(), failing, "drover-system"); err != nil {
		t.Errorf("it exists: %v", err)
	}
}
