package managedfields

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// TestTrim: either form of an object has one entry that says nothing, and all of them where Cluster API is to rewrite the entries.
func TestTrim(t *testing.T) {
	const owned = `{"f:metadata":{"f:labels":{"f:cluster.x-k8s.io/cluster-name":{}}}}`
	for name, c := range map[string]struct {
		manager, fields string
		typed, untyped  bool // whether the fields are trimmed
	}{
		"a controller":           {"capd", owned, true, true},
		"a MachineSet":           {"capi-machineset", `{"f:spec":{"f:backend":{}}}`, true, true},
		"a MachineSet of before": {"capi-machineset", owned, true, false},
		"nobody that applied":    {"before-first-apply", owned, false, false},
		"a topology":             {"capi-topology", owned, false, false},
	} {
		entries := []metav1.ManagedFieldsEntry{
			{Manager: "other", Operation: metav1.ManagedFieldsOperationUpdate, FieldsV1: metav1.NewFieldsV1(`{"f:status":{}}`)},
			{Manager: c.manager, Operation: metav1.ManagedFieldsOperationApply, FieldsV1: metav1.NewFieldsV1(c.fields)},
		}
		whole := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "one", ManagedFields: entries}}
		trimmed := whole.DeepCopy()
		trimmed.ManagedFields = []metav1.ManagedFieldsEntry{
			{Manager: "trimmed", Operation: metav1.ManagedFieldsOperationUpdate, FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1("{}")},
		}
		want := map[bool]*clusterv1.Machine{true: trimmed, false: whole}

		got := whole.DeepCopy()
		if _, err := Trim(got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want[c.typed].ManagedFields, got.ManagedFields); diff != "" {
			t.Errorf("%s, a typed object: %s", name, diff)
		}
		u := untyped(t, whole)
		if _, err := Trim(u); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(untyped(t, want[c.untyped]).Object, u.Object); diff != "" {
			t.Errorf("%s, an unstructured object: %s", name, diff)
		}
	}
}

// TestTrimBootstrap: Cluster API reads RKEBootstraps from the cache of typed objects, and takes the labels that a MachineSet of Cluster API
// before 1.12 owns from it.
func TestTrimBootstrap(t *testing.T) {
	for fields, whole := range map[string]bool{
		`{"f:metadata":{"f:labels":{"f:cluster.x-k8s.io/cluster-name":{}}}}`:      true,
		`{"f:metadata":{"f:annotations":{"f:cluster.x-k8s.io/cluster-name":{}}}}`: false,
		`{"f:spec":{"f:clusterName":{}}}`:                                         false,
	} {
		bootstrap := &rkev1.RKEBootstrap{ObjectMeta: metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{
			{Manager: "other", Operation: metav1.ManagedFieldsOperationUpdate},
			{Manager: "capi-machineset", Operation: metav1.ManagedFieldsOperationApply, FieldsV1: metav1.NewFieldsV1(fields)},
		}}}
		if _, err := Trim(bootstrap); err != nil || (len(bootstrap.ManagedFields) == 2) != whole {
			t.Errorf("%s: %d entries stay, %v", fields, len(bootstrap.ManagedFields), err)
		}
	}
}

func TestTrimNothing(t *testing.T) {
	for _, in := range []any{&unstructured.Unstructured{Object: map[string]any{}}, &clusterv1.Machine{}, "no object"} {
		if out, err := Trim(in); err != nil || !cmp.Equal(in, out) {
			t.Errorf("%v became %v, %v", in, out, err)
		}
	}
}

// untyped is an object as it is in the cache for objects without a type.
func untyped(t *testing.T, object any) *unstructured.Unstructured {
	t.Helper()
	raw, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{}
	if err := json.Unmarshal(raw, &u.Object); err != nil {
		t.Fatal(err)
	}
	return u
}
