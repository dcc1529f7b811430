package server

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// bootstrapsAlone is a cache with an RKEBootstrap. It notes of which objects there are informers.
type bootstrapsAlone struct {
	alone[rkev1.RKEBootstrap]
	informers *[]client.Object
}

func (c bootstrapsAlone) GetInformer(_ context.Context, object client.Object, _ ...cache.InformerGetOption) (cache.Informer, error) {
	*c.informers = append(*c.informers, object)
	return nil, nil
}

func newUnstructured(gvk schema.GroupVersionKind) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(gvk)
	return object
}

// TestTypedObjects: what Cluster API reads without a type is read and watched where the hub's own objects are; other kinds are not.
func TestTypedObjects(t *testing.T) {
	bootstrap := &rkev1.RKEBootstrap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "a", ResourceVersion: "7", Labels: map[string]string{"of": "machine"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "cluster.x-k8s.io/v1beta2", Kind: "Machine", Name: "a", Controller: new(true)}}},
		Spec: rkev1.RKEBootstrapSpec{ClusterName: "lab"},
		Status: rkev1.RKEBootstrapStatus{DataSecretName: new("a-bootstrap"),
			Conditions: []metav1.Condition{{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Ready"}}},
	}
	var informers []client.Object
	c := typedObjects{bootstrapsAlone{alone: alone[rkev1.RKEBootstrap]{object: bootstrap}, informers: &informers}}
	of, template := rkev1.GroupVersion.WithKind("RKEBootstrap"), rkev1.GroupVersion.WithKind("RKEBootstrapTemplate")

	// What the API server answers.
	answer := bootstrap.DeepCopy()
	answer.SetGroupVersionKind(of)
	raw, err := json.Marshal(answer)
	if err != nil {
		t.Fatal(err)
	}
	want := &unstructured.Unstructured{}
	if err := want.UnmarshalJSON(raw); err != nil {
		t.Fatal(err)
	}
	got := newUnstructured(of)
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(bootstrap), got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the object differs (-want +got):\n%s", diff)
	}
	err = unstructured.SetNestedField(got.Object, "somebody", "metadata", "labels", "of")
	if err != nil || bootstrap.Labels["of"] != "machine" {
		t.Errorf("what was read is not a copy: %v", err)
	}
	for _, other := range []client.Object{newUnstructured(template), &rkev1.RKEControlPlane{}} {
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(bootstrap), other); !errors.Is(err, errOther) {
			t.Errorf("%T: %v", other, err)
		}
	}

	for _, object := range []client.Object{newUnstructured(of), newUnstructured(template), &rkev1.RKECluster{}} {
		if _, err := c.GetInformer(t.Context(), object); err != nil {
			t.Error(err)
		}
	}
	wanted := []client.Object{&rkev1.RKEBootstrap{}, newUnstructured(template), &rkev1.RKECluster{}}
	if diff := cmp.Diff(wanted, informers); diff != "" {
		t.Errorf("the informers differ (-want +got):\n%s", diff)
	}
	scheme, err := NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	for gvk, create := range readByBoth {
		if kinds, _, err := scheme.ObjectKinds(create()); err != nil || !slices.Contains(kinds, gvk) {
			t.Errorf("%s is an object of %v, %v", gvk.Kind, kinds, err)
		}
	}
}
