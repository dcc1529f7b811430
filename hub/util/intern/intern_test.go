package intern

import (
	"bytes"
	"encoding/json"
	"errors"
	"hash/maphash"
	"log"
	"maps"
	"os"
	goruntime "runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"
	"weak"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

func machine() *clusterv1.Machine {
	return &clusterv1.Machine{
		TypeMeta: metav1.TypeMeta{APIVersion: "cluster.x-k8s.io/v1beta2", Kind: "Machine"},
		ObjectMeta: metav1.ObjectMeta{
			Name: "one", Labels: map[string]string{clusterv1.ClusterNameLabel: "blue"},
			OwnerReferences: []metav1.OwnerReference{{Kind: "MachineSet", Name: "pool"}},
			Annotations:     map[string]string{"long": strings.Repeat("x", longestString+1)},
			ManagedFields:   []metav1.ManagedFieldsEntry{{Manager: "capi-machineset", FieldsV1: metav1.NewFieldsV1(`{"f:spec":{}}`)}},
		},
		Status: clusterv1.MachineStatus{Conditions: []metav1.Condition{
			{Type: "Ready", Status: metav1.ConditionFalse, Reason: "WaitingForNode", LastTransitionTime: metav1.Unix(1_700_000_000, 0)},
		}},
	}
}

// TestMain chooses a seed with which no two strings of machine have the same place, where one would take that of the other each time.
func TestMain(m *testing.M) {
	raw, err := json.Marshal(machine())
	if err != nil {
		log.Fatal(err)
	}
	words := strings.FieldsFunc(string(raw), func(r rune) bool { return r == '"' })
	slices.Sort(words)
	for words = slices.Compact(words); ; seed = maphash.MakeSeed() {
		places := map[uint64]bool{}
		for _, word := range words {
			places[maphash.String(seed, word)%maxStrings] = true
		}
		if len(places) == len(words) {
			break
		}
	}
	os.Exit(m.Run())
}

// decode returns an object as a client decodes it, with strings of its own.
func decode[T any](t *testing.T, from any) *T {
	t.Helper()
	raw, err := json.Marshal(from)
	if err != nil {
		t.Fatal(err)
	}
	out := new(T)
	if err := json.Unmarshal(raw, out); err != nil {
		t.Fatal(err)
	}
	return out
}

func same(a, b string) bool { return a == b && unsafe.StringData(a) == unsafe.StringData(b) }

// onlyKey returns the key of a map with one.
func onlyKey[V any](m map[string]V) string {
	for key := range maps.Keys(m) {
		return key
	}
	return ""
}

// TestTyped: what two objects say alike is in memory once, and they say what they said before.
func TestTyped(t *testing.T) {
	first, second := decode[clusterv1.Machine](t, machine()), decode[clusterv1.Machine](t, machine())
	Object(first)
	Object(second)
	for name, s := range map[string][2]string{
		"kind":         {first.Kind, second.Kind},
		"label":        {first.Labels[clusterv1.ClusterNameLabel], second.Labels[clusterv1.ClusterNameLabel]},
		"key of label": {onlyKey(first.Labels), onlyKey(second.Labels)},
		"owner":        {first.OwnerReferences[0].Name, second.OwnerReferences[0].Name},
		"reason":       {first.Status.Conditions[0].Reason, second.Status.Conditions[0].Reason},
		"status":       {string(first.Status.Conditions[0].Status), string(second.Status.Conditions[0].Status)},
	} {
		if !same(s[0], s[1]) {
			t.Errorf("%s: each has a string of its own", name)
		}
	}
	if diff := cmp.Diff(decode[clusterv1.Machine](t, machine()), second); diff != "" {
		t.Errorf("the object was changed: %s", diff)
	}
}

// TestUnstructured is TestTyped of objects without a type. Their strings take no memory beside the map.
func TestUnstructured(t *testing.T) {
	objects := [2]*unstructured.Unstructured{{}, {}}
	for _, object := range objects {
		object.Object = *decode[map[string]any](t, machine())
		Object(object)
	}
	first, second := objects[0].Object, objects[1].Object
	if !same(first["kind"].(string), second["kind"].(string)) {
		t.Error("each has a kind of its own")
	}
	if a, b := objects[0].GetLabels(), objects[1].GetLabels(); !same(onlyKey(a), onlyKey(b)) {
		t.Error("each has a key of its own")
	}
	if allocated := testing.AllocsPerRun(100, func() { Object(objects[1]) }); allocated > 0 {
		t.Errorf("each time %v allocations", allocated)
	}
	if diff := cmp.Diff(*decode[map[string]any](t, machine()), second); diff != "" {
		t.Errorf("the object was changed: %s", diff)
	}
}

// TestSharedManagedFields: the entries that all objects share are not written to.
func TestSharedManagedFields(t *testing.T) {
	object := machine()
	shared := strings.Clone("capi-machineset")
	object.ManagedFields[0].Manager = shared
	Object(&clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "capi-machineset"}})
	Object(object)
	if !same(object.ManagedFields[0].Manager, shared) {
		t.Error("an entry was written to")
	}
}

// TestSecret: a Secret that two caches hold has its content in memory once. Nobody can append to it in place.
func TestSecret(t *testing.T) {
	from := &corev1.Secret{Data: map[string][]byte{"plan": []byte(`{"files":[]}`), "empty": {}}}
	first, second := decode[corev1.Secret](t, from), decode[corev1.Secret](t, from)
	Object(first)
	Object(second)
	plan := second.Data["plan"]
	if &first.Data["plan"][0] != &plan[0] || cap(plan) != len(plan) {
		t.Errorf("the plan is in memory twice, or has room for more: %d of %d bytes", len(plan), cap(plan))
	}
	if diff := cmp.Diff(decode[corev1.Secret](t, from), second); diff != "" {
		t.Errorf("the Secret was changed: %s", diff)
	}
}

// TestLargeContent: large content is in memory once, also where a cache gets it long after another one, as after a start of the hub, and no
// longer than somebody has it.
func TestLargeContent(t *testing.T) {
	plan := bytes.Repeat([]byte("plan"), 10_000)
	from := &corev1.Secret{Data: map[string][]byte{"plan": plan}}
	held := func() weak.Pointer[byte] {
		first, second := decode[corev1.Secret](t, from), decode[corev1.Secret](t, from)
		Object(first)
		for i := range 10_000 {
			if other := []byte(strings.Repeat("other", longestString) + strconv.Itoa(i)); largeSlot(other) != largeSlot(plan) {
				content(other)
			}
		}
		Object(second)
		if got := second.Data["plan"]; &first.Data["plan"][0] != &got[0] || cap(got) != len(plan) {
			t.Error("the plan is in memory twice, or has room for more")
		}
		if diff := cmp.Diff(from, second); diff != "" {
			t.Errorf("the Secret was changed: %s", diff)
		}
		return weak.Make(&first.Data["plan"][0])
	}()
	goruntime.GC()
	if held.Value() != nil {
		t.Error("the plan stays in memory without anybody who has it")
	}
}

// TestOthers: what is no object, or has parts that cannot be set, stays as it is.
func TestOthers(t *testing.T) {
	now := metav1.NewTime(time.Now())
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &now}}
	for _, other := range []any{nil, "text", 1, (*corev1.Secret)(nil), corev1.Secret{}, &unstructured.Unstructured{},
		&runtime.RawExtension{Raw: []byte("{}")}, pod} {
		Object(other)
	}
	if !pod.DeletionTimestamp.Equal(&now) {
		t.Errorf("the time is %v", pod.DeletionTimestamp)
	}
}

// TestFullMap: a map with as many entries as Go keeps without a table gets no table.
func TestFullMap(t *testing.T) {
	const objects, most = 1000, 500 // a map of eight strings takes 336 bytes, and with a table twice that
	typed, untyped := make([]*corev1.Node, objects), make([]*unstructured.Unstructured, objects)
	for i := range objects {
		labels, unlabelled := make(map[string]string, fullMap), make(map[string]any, fullMap)
		for key := range fullMap {
			labels[strconv.Itoa(key)], unlabelled[strconv.Itoa(key)] = "text", "text"
		}
		typed[i] = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: labels}}
		untyped[i] = &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"labels": unlabelled}}}
	}
	allocated := func(each func(i int)) uint64 {
		var before, after goruntime.MemStats
		goruntime.ReadMemStats(&before)
		for i := range objects {
			each(i)
		}
		goruntime.ReadMemStats(&after)
		return (after.TotalAlloc - before.TotalAlloc) / objects
	}
	if each := allocated(func(i int) { Object(typed[i]) }); each > most {
		t.Errorf("a map of a typed object takes %d bytes", each)
	}
	if each := allocated(func(i int) { Object(untyped[i]) }); each > most {
		t.Errorf("a map of an object without a type takes %d bytes", each)
	}
	for key := range fullMap {
		if value, _, _ := unstructured.NestedString(untyped[1].Object, "metadata", "labels", strconv.Itoa(key)); value != "text" ||
			typed[1].Labels[strconv.Itoa(key)] != "text" {
			t.Errorf("label %d is %q and %q", key, typed[1].Labels[strconv.Itoa(key)], value)
		}
	}
}

// TestRoom: the room for more that a decoder leaves in a slice is given back.
func TestRoom(t *testing.T) {
	want := machine()
	got := machine()
	got.Status.Conditions = append(make([]metav1.Condition, 0, 16), got.Status.Conditions...)
	got.Finalizers = make([]string, 0, 4)
	Object(got)
	if c, f := cap(got.Status.Conditions), cap(got.Finalizers); c != 1 || f != 0 || got.Finalizers == nil {
		t.Errorf("there is room for %d conditions and %d finalizers: %v", c, f, got.Finalizers)
	}
	got.Finalizers = nil
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the object was changed: %s", diff)
	}
}

// TestManyStrings: strings that have taken the place of others are equal to what was asked for.
func TestManyStrings(t *testing.T) {
	for i := range 4 * maxStrings {
		if s := strconv.Itoa(i); text(s) != s || string(content([]byte(s))) != s {
			t.Fatalf("%s became %s", s, text(s))
		}
	}
}

// BenchmarkObject is what a cache pays for an object that it gets; decoding one takes some twenty times as long.
func BenchmarkObject(b *testing.B) {
	raw, err := json.Marshal(machine())
	if err != nil {
		b.Fatal(err)
	}
	typed, untyped := new(clusterv1.Machine), &unstructured.Unstructured{}
	if err := errors.Join(json.Unmarshal(raw, typed), json.Unmarshal(raw, &untyped.Object)); err != nil {
		b.Fatal(err)
	}
	b.Run("decode", func(b *testing.B) {
		for b.Loop() {
			_ = json.Unmarshal(raw, new(clusterv1.Machine))
		}
	})
	b.Run("typed", func(b *testing.B) {
		for b.Loop() {
			Object(typed)
		}
	})
	b.Run("unstructured", func(b *testing.B) {
		for b.Loop() {
			Object(untyped)
		}
	})
}
