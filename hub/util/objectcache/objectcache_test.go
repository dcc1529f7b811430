package objectcache

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/event"
)

// withoutData is what the manager's cache shows of Secrets.
type withoutData struct{ client.Reader }

func (w withoutData) Get(ctx context.Context, key client.ObjectKey, into client.Object, opts ...client.GetOption) error {
	err := w.Reader.Get(ctx, key, into, opts...)
	if secret, ok := into.(*corev1.Secret); ok {
		secret.Data = nil
	}
	return err
}

// counted counts reads.
type counted struct {
	client.Reader
	reads int
}

func (c *counted) Get(ctx context.Context, key client.ObjectKey, into client.Object, opts ...client.GetOption) error {
	c.reads++
	return c.Reader.Get(ctx, key, into, opts...)
}

// What has not changed is not read again, what has is, and what is gone is gone.
func TestCache(t *testing.T) {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "a"}, Data: map[string][]byte{"k": []byte("one")}}
	configMap := &corev1.ConfigMap{ObjectMeta: secret.ObjectMeta, Data: map[string]string{"k": "one"}}
	api := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(secret, configMap).Build()
	live := &counted{Reader: api}
	var c Cache
	key := client.ObjectKeyFromObject(secret)
	read := func() (string, string) {
		t.Helper()
		s, err := c.Secret(t.Context(), withoutData{api}, live, key)
		if err != nil {
			t.Fatal(err)
		}
		m, err := c.ConfigMap(t.Context(), api, live, key)
		if err != nil {
			t.Fatal(err)
		}
		return string(s.Data["k"]), m.Data["k"]
	}
	for range 3 {
		if s, m := read(); s != "one" || m != "one" {
			t.Fatalf("got %q and %q", s, m)
		}
	}
	if live.reads != 2 {
		t.Errorf("read %d times, want once each", live.reads)
	}
	if err := api.Get(t.Context(), key, secret); err != nil {
		t.Fatal(err)
	}
	secret.Data["k"] = []byte("two")
	if err := api.Update(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	if s, _ := read(); s != "two" || live.reads != 3 {
		t.Errorf("got %q after %d reads", s, live.reads)
	}
	if err := api.Delete(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Secret(t.Context(), withoutData{api}, live, key); !apierrors.IsNotFound(err) || len(c.secrets.held) > 0 {
		t.Errorf("got error %v, and %d are kept", err, len(c.secrets.held))
	}
}

// TestForget: nothing is held of deleted objects, for which nobody asks any more.
func TestForget(t *testing.T) {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "a"}, Data: map[string][]byte{"k": []byte("one")}}
	configMap := &corev1.ConfigMap{ObjectMeta: secret.ObjectMeta, Data: map[string]string{"k": "one"}}
	api := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(secret, configMap).Build()
	var c Cache
	key := client.ObjectKeyFromObject(secret)
	if _, err := c.Secret(t.Context(), withoutData{api}, api, key); err != nil {
		t.Fatal(err)
	}
	if _, err := c.ConfigMap(t.Context(), api, api, key); err != nil {
		t.Fatal(err)
	}
	held := func(secrets, configMaps int) {
		t.Helper()
		if len(c.secrets.held) != secrets || len(c.configMaps.held) != configMaps {
			t.Errorf("%d Secrets and %d ConfigMaps are held, want %d and %d", len(c.secrets.held), len(c.configMaps.held), secrets, configMaps)
		}
	}
	other := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "b"}}
	passed := c.ForgetSecrets().Delete(event.DeleteEvent{Object: other}) && c.ForgetSecrets().Update(event.UpdateEvent{ObjectNew: secret})
	held(1, 1)
	passed = c.ForgetSecrets().Delete(event.DeleteEvent{Object: secret}) && passed
	held(0, 1)
	metadata := &metav1.PartialObjectMetadata{ObjectMeta: configMap.ObjectMeta}
	if passed = c.ForgetConfigMaps().Delete(event.DeleteEvent{Object: metadata}) && passed; !passed {
		t.Error("an event is dropped")
	}
	held(0, 0)
}

// deletedMeanwhile deletes what it has read.
type deletedMeanwhile struct{ client.Client }

func (d deletedMeanwhile) Get(ctx context.Context, key client.ObjectKey, into client.Object, opts ...client.GetOption) error {
	if err := d.Client.Get(ctx, key, into, opts...); err != nil {
		return err
	}
	return d.Delete(ctx, into)
}

// TestDeletedMeanwhile: an object that is deleted while it is read, so that its event comes before it is held, is not held.
func TestDeletedMeanwhile(t *testing.T) {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "a"}, Data: map[string][]byte{"k": []byte("one")}}
	api := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(secret).Build()
	var c Cache
	got, err := c.Secret(t.Context(), withoutData{api}, deletedMeanwhile{api}, client.ObjectKeyFromObject(secret))
	if err != nil || string(got.Data["k"]) != "one" || len(c.secrets.held) > 0 {
		t.Errorf("got %v, %v, and %d are held", got, err, len(c.secrets.held))
	}
}
