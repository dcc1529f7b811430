package capi

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/testenv/fakeclient"
)

// madeBootstrap is an RKEBootstrap that the MachineSet controller makes with its client. The API server is controller-runtime's, with the
// managed fields of a real one.
type madeBootstrap struct {
	*testing.T
	server, client client.Client
	applies        *int
	set            *clusterv1.MachineSet
}

func newMadeBootstrap(t *testing.T, template map[string]string) madeBootstrap {
	set := &clusterv1.MachineSet{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "s", UID: "u",
		Labels: map[string]string{clusterv1.MachineDeploymentNameLabel: "d"}}}
	set.Spec.Template.Labels, set.Spec.Template.Annotations = template, map[string]string{"drain": "no"}
	server, applies := fakeclient.CountApplies(fake.NewClientBuilder().WithReturnManagedFields().WithObjects(set).
		WithScheme(fakeclient.Scheme(t, clusterv1.AddToScheme, rkev1.AddToScheme)).Build())
	c, err := machineSetClient(t.Context(), server, &informertest.FakeInformers{Scheme: server.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	return madeBootstrap{t, server, c, applies, set}
}

// create makes the RKEBootstrap as createBootstrapConfig of Cluster API does, with these labels of the MachineSet.
func (b madeBootstrap) create(labels map[string]string) {
	b.Helper()
	all := maps.Clone(labels)
	all[clusterv1.ClusterNameLabel] = "c"
	made := b.object(all, map[string]string{clusterv1.TemplateClonedFromNameAnnotation: "t", "drain": "no"})
	made.SetOwnerReferences([]metav1.OwnerReference{
		{APIVersion: clusterv1.GroupVersion.String(), Kind: "MachineSet", Name: b.set.Name, UID: b.set.UID}})
	b.apply(made, machineSetOwner)
	base, entries := made.DeepCopy(), made.GetManagedFields()
	for i := range entries {
		fields := map[string]any{}
		if err := json.Unmarshal(entries[i].FieldsV1.GetRawBytes(), &fields); err != nil {
			b.Fatal(err)
		}
		unstructured.RemoveNestedField(fields, "f:metadata", "f:labels")
		unstructured.RemoveNestedField(fields, "f:metadata", "f:annotations")
		raw, err := json.Marshal(fields)
		if err != nil {
			b.Fatal(err)
		}
		entries[i].FieldsV1 = metav1.NewFieldsV1(string(raw))
	}
	made.SetManagedFields(entries)
	patch := client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{})
	if err := b.client.Patch(b.Context(), made, patch); err != nil {
		b.Fatal(err)
	}
}

func (b madeBootstrap) object(labels, annotations map[string]string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(rkev1.GroupVersion.WithKind("RKEBootstrap"))
	object.SetNamespace(b.set.Namespace)
	object.SetName("m")
	object.SetLabels(labels)
	object.SetAnnotations(annotations)
	return object
}

func (b madeBootstrap) apply(object *unstructured.Unstructured, owner client.FieldOwner) {
	b.Helper()
	err := b.client.Apply(b.Context(), client.ApplyConfigurationFromUnstructured(object), owner, client.ForceOwnership)
	if err != nil {
		b.Fatal(err)
	}
}

// sync applies metadata as updateLabelsAndAnnotations of Cluster API does, and fails the test unless that takes so many requests. It
// returns what is stored then.
func (b madeBootstrap) sync(what string, labels map[string]string, want int) *rkev1.RKEBootstrap {
	b.Helper()
	*b.applies = 0
	b.apply(b.object(labels, b.set.Spec.Template.Annotations), machineSetMetadataOwner)
	if *b.applies != want {
		b.Errorf("%s: %d requests were sent, want %d", what, *b.applies, want)
	}
	return b.stored()
}

func (b madeBootstrap) stored() *rkev1.RKEBootstrap {
	b.Helper()
	stored := &rkev1.RKEBootstrap{}
	if err := b.server.Get(b.Context(), client.ObjectKey{Namespace: "fleet", Name: "m"}, stored); err != nil {
		b.Fatal(err)
	}
	return stored
}

// owned are the fields that a manager owns; nil for none.
func (b madeBootstrap) owned(manager string) (fields map[string]any) {
	b.Helper()
	entries := b.stored().ManagedFields
	i := slices.IndexFunc(entries, func(e metav1.ManagedFieldsEntry) bool { return e.Manager == manager })
	if i < 0 {
		return nil
	}
	if err := json.Unmarshal(entries[i].FieldsV1.GetRawBytes(), &fields); err != nil {
		b.Fatal(err)
	}
	return fields
}

// TestMachineSetOwnsMetadata: labels and annotations of what a MachineSet has made are its own without a request for that, and one that the
// MachineSet loses is removed.
func TestMachineSetOwnsMetadata(t *testing.T) {
	b := newMadeBootstrap(t, map[string]string{"pool": "a", "mine": "b"})
	labels := map[string]string{"pool": "a", "mine": "b", clusterv1.MachineSetNameLabel: "s", clusterv1.MachineDeploymentNameLabel: "d"}
	b.create(labels)
	own := map[string]any{}
	for label := range labels {
		own["f:"+label] = map[string]any{}
	}
	annotations := map[string]any{"f:drain": map[string]any{}}
	want := map[string]any{"f:metadata": map[string]any{"f:labels": own, "f:annotations": annotations}}
	if diff := cmp.Diff(want, b.owned(machineSetMetadataOwner)); diff != "" {
		t.Errorf("it owns (-want +got):\n%s", diff)
	}
	maker, _ := b.owned(machineSetOwner)["f:metadata"].(map[string]any)
	if maker["f:labels"] != nil || maker["f:annotations"] != nil || maker["f:ownerReferences"] == nil {
		t.Errorf("who has made it owns %v", maker)
	}
	b.sync("nothing has changed", labels, 0)
	labels["more"] = "c"
	if got := b.sync("one more label", labels, 1); got.Labels["more"] != "c" {
		t.Errorf("its labels are %v", got.Labels)
	}
	delete(labels, "more")
	delete(labels, "mine")
	got := b.sync("two labels less", labels, 1)
	labels[clusterv1.ClusterNameLabel] = "c"
	if !maps.Equal(got.Labels, labels) || len(got.Annotations) != 2 {
		t.Errorf("its labels are %v, its annotations %v", got.Labels, got.Annotations)
	}
}

// TestNoAnnotations: annotations of others are not lost where a MachineSet has none.
func TestNoAnnotations(t *testing.T) {
	b := newMadeBootstrap(t, map[string]string{"pool": "a"})
	entry, err := ownerOf(b.object(map[string]string{"pool": "a"}, map[string]string{}))
	if got := entry.FieldsV1.GetRawString(); err != nil || got != `{"f:metadata":{"f:labels":{"f:pool":{}}}}` {
		t.Errorf("it owns %s (%v)", got, err)
	}
}

// TestMachineSetChangedMeanwhile: where the MachineSet has another label by now, its metadata is applied.
func TestMachineSetChangedMeanwhile(t *testing.T) {
	b := newMadeBootstrap(t, map[string]string{"pool": "b"})
	labels := map[string]string{"pool": "a", clusterv1.MachineSetNameLabel: "s", clusterv1.MachineDeploymentNameLabel: "d"}
	b.create(labels)
	if got := b.owned(machineSetMetadataOwner); got != nil {
		t.Errorf("it owns %v", got)
	}
	labels["pool"] = "b"
	if got := b.sync("another label", labels, 1); got.Labels["pool"] != "b" {
		t.Errorf("its labels are %v", got.Labels)
	}
}
