package patch

import (
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sigs.k8s.io/cluster-api/util/conditions"
)

// TestConditionsOfOthers: a condition that is there already is replaced in one write, whatever others have written meanwhile.
func TestConditionsOfOthers(t *testing.T) {
	set := func(a *api, types ...string) {
		object := a.read()
		object.Status.Conditions = nil
		for _, name := range types {
			object.Status.Conditions = append(object.Status.Conditions, metav1.Condition{Type: name, Status: metav1.ConditionTrue, Reason: "Seen",
				LastTransitionTime: metav1.Now()})
		}
		if err := a.Status().Update(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	for name, tc := range map[string]struct {
		there     []string
		meanwhile func(*api)
		writes    int
		want      map[string]string
	}{
		"the first time": {there: []string{"Theirs"}, writes: 1, want: map[string]string{"Theirs": "", "Ready": "now"}},
		"the first time, and others have written": {there: []string{"Other", "Theirs"}, meanwhile: func(a *api) { a.theirs("as it is") },
			writes: 1, want: map[string]string{"Other": "", "Theirs": "as it is", "Ready": "now"}},
		"the first of all": {writes: 1, want: map[string]string{"Ready": "now"}},
		"again":            {there: []string{"Ready", "Theirs"}, writes: 1, want: map[string]string{"Theirs": "", "Ready": "now"}},
		"others have written": {there: []string{"Ready", "Theirs"}, meanwhile: func(a *api) { a.theirs("as it is") }, writes: 1,
			want: map[string]string{"Theirs": "as it is", "Ready": "now"}},
		"others have changed the order": {there: []string{"Ready", "Theirs"}, meanwhile: func(a *api) { set(a, "Other", "Ready", "Theirs") },
			writes: 3, want: map[string]string{"Other": "", "Theirs": "", "Ready": "now"}},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAPI(t)
			set(a, tc.there...)
			object := a.read()
			if tc.meanwhile != nil {
				a.before = sync.OnceFunc(func() { tc.meanwhile(a) })
			}
			if err := Conditions(t.Context(), a, object, "test", ready("now")); err != nil {
				t.Fatal(err)
			}
			if len(a.writes) != tc.writes {
				t.Errorf("%d writes, want %d: %q", len(a.writes), tc.writes, a.writes)
			}
			if diff := cmp.Diff(tc.want, a.messages()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			stored := a.read()
			conditions.Set(stored, ready("now"))
			if diff := cmp.Diff(a.read().Status.Conditions, stored.Status.Conditions); diff != "" && tc.writes == 1 {
				t.Errorf("the order is not that of Cluster API:\n%s", diff)
			}
		})
	}
}

// TestConditionsOfAList: what was read some time ago is compared with what the client knows by now.
func TestConditionsOfAList(t *testing.T) {
	a := newAPI(t)
	a.theirs("as it was")
	listed := a.read()
	for range 2 {
		if err := Conditions(t.Context(), a, listed, "test", ready("now")); err != nil {
			t.Fatal(err)
		}
	}
	if len(a.writes) != 1 {
		t.Errorf("%d writes: %q", len(a.writes), a.writes)
	}
}

// TestConditionsOfAnother: what has the name now gets nothing.
func TestConditionsOfAnother(t *testing.T) {
	a := newAPI(t)
	a.theirs("as it is")
	object := a.read()
	conditions.Set(object, ready("before"))
	object.UID, object.ResourceVersion = "another", "1"
	if err := Conditions(t.Context(), a, object, "test", ready("now")); !apierrors.IsConflict(err) {
		t.Errorf("error %v", err)
	}
	if diff := cmp.Diff(map[string]string{"Theirs": "as it is"}, a.messages()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestConditionsOfAnyGeneration: a change of the spec, which is another controller's, is no reason to write a condition again.
func TestConditionsOfAnyGeneration(t *testing.T) {
	a := newAPI(t)
	object := a.read()
	for generation := range int64(3) {
		object.Generation = generation
		if err := Conditions(t.Context(), a, object, "test", ready("now")); err != nil {
			t.Fatal(err)
		}
		object = a.read()
	}
	if len(a.writes) != 1 || conditions.Get(object, "Ready").ObservedGeneration != 0 {
		t.Errorf("%d writes: %q; the condition is %+v", len(a.writes), a.writes, conditions.Get(object, "Ready"))
	}
}

// TestRemoveCondition: one write takes a condition away, and leaves those of others, also what they write meanwhile, and the object in
// memory. One that is not there costs none.
func TestRemoveCondition(t *testing.T) {
	a := newAPI(t)
	a.theirs("old")
	if err := Conditions(t.Context(), a, a.read(), "test", ready("now")); err != nil {
		t.Fatal(err)
	}
	object := a.read()
	a.writes, a.before = nil, sync.OnceFunc(func() { a.theirs("new") })
	if err := RemoveCondition(t.Context(), a, object, "test", "Ready"); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"Theirs": "new"}, a.messages()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if !conditions.IsTrue(object, "Ready") {
		t.Error("the object in memory has changed")
	}
	a.writes = nil
	if err := RemoveCondition(t.Context(), a, a.read(), "test", "Ready"); err != nil || len(a.writes) > 0 {
		t.Errorf("without the condition: %v, wrote %q", err, a.writes)
	}
}
