package server

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// alone is a cache with an object, which it has with its type only, and nothing else.
type alone[T any] struct {
	cache.Cache
	object *T
}

var errOther = errors.New("the cache has objects of one type only")

func (c alone[T]) Get(_ context.Context, _ client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	into, ok := any(object).(*T)
	if !ok {
		return errOther
	}
	*into = *c.object
	return nil
}

// secretsAlone is a cache with a Secret, and an informer of Secrets.
type secretsAlone struct {
	alone[corev1.Secret]
	informer cache.Informer
}

func (c secretsAlone) GetInformer(_ context.Context, object client.Object, _ ...cache.InformerGetOption) (cache.Informer, error) {
	if _, ok := object.(*corev1.Secret); !ok {
		return nil, errOther
	}
	return c.informer, nil
}

func newMetadata(kind string) *metav1.PartialObjectMetadata {
	metadata := &metav1.PartialObjectMetadata{}
	metadata.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(kind))
	return metadata
}

// TestSecretMetadata: the metadata of Secrets is read and watched where the Secrets are; that of other kinds is not.
func TestSecretMetadata(t *testing.T) {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "a", Labels: map[string]string{"of": "machine"}},
		Data: map[string][]byte{"plan": []byte("{}")}}
	want := newMetadata("Secret")
	want.ObjectMeta = *secret.ObjectMeta.DeepCopy()
	c := secretMetadata{secretsAlone{alone: alone[corev1.Secret]{object: secret},
		informer: toolscache.NewSharedIndexInformer(&toolscache.ListWatch{}, &corev1.Secret{}, 0, toolscache.Indexers{})}}

	got := newMetadata("Secret")
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(secret), got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the metadata differs (-want +got):\n%s", diff)
	}
	got.Labels["of"] = "somebody"
	if secret.Labels["of"] != "machine" {
		t.Error("what was read is not a copy")
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(secret), newMetadata("ConfigMap")); !errors.Is(err, errOther) {
		t.Errorf("the metadata of a ConfigMap: %v", err)
	}

	informer, err := c.GetInformer(t.Context(), newMetadata("Secret"))
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := informer.(metadataInformer); !ok {
		t.Errorf("the informer of the metadata is a %T", informer)
	}
	if _, err := c.GetInformer(t.Context(), newMetadata("ConfigMap")); !errors.Is(err, errOther) {
		t.Errorf("the informer of the metadata of ConfigMaps: %v", err)
	}
	if informer, err := c.GetInformer(t.Context(), &corev1.Secret{}); err != nil || informer != c.Cache.(secretsAlone).informer {
		t.Errorf("the informer of Secrets is %T, %v", informer, err)
	}
}

// TestMetadataHandler: who watches the metadata of Secrets gets no Secret.
func TestMetadataHandler(t *testing.T) {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Data: map[string][]byte{"plan": []byte("{}")}}
	want := newMetadata("Secret")
	want.Name = "a"
	var got []any
	note := func(object any) { got = append(got, object) }
	h := metadataHandler{toolscache.ResourceEventHandlerFuncs{
		AddFunc: note, UpdateFunc: func(before, after any) { got = append(got, before, after) }, DeleteFunc: note,
	}}
	h.OnAdd(secret, true)
	h.OnUpdate(secret, secret)
	h.OnDelete(secret)
	h.OnDelete(toolscache.DeletedFinalStateUnknown{Key: "a", Obj: secret})
	wanted := []any{want, want, want, want, toolscache.DeletedFinalStateUnknown{Key: "a", Obj: want}}
	if diff := cmp.Diff(wanted, got); diff != "" {
		t.Errorf("the events differ (-want +got):\n%s", diff)
	}
}
