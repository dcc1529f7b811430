package patch

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"sigs.k8s.io/cluster-api/util/conditions"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/testenv/fakeclient"
	"github.com/drover-dev/drover/hub/util/message"
)

// api is an API server with one CustomMachine, a cache that may be behind it, and a list of what was written.
type api struct {
	t *testing.T
	client.Client
	writes []string
	// cached is what a Get returns, where set.
	cached *rkev1.CustomMachine
	// before runs before each write.
	before func()
}

func newAPI(t *testing.T) *api {
	scheme := fakeclient.Scheme(t, rkev1.AddToScheme)
	a := &api{t: t}
	write := func(kind string, object client.Object, p client.Patch) error {
		if a.before != nil {
			a.before()
		}
		raw, err := p.Data(object)
		a.writes = append(a.writes, kind+" "+string(raw))
		return err
	}
	a.Client = fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&rkev1.CustomMachine{}).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if a.cached != nil {
				a.cached.DeepCopyInto(obj.(*rkev1.CustomMachine))
				return nil
			}
			return c.Get(ctx, key, obj, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, p client.Patch, opts ...client.PatchOption) error {
			return errors.Join(write("object", obj, p), c.Patch(ctx, obj, p, opts...))
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, obj client.Object, p client.Patch,
			opts ...client.SubResourcePatchOption) error {
			if err := write(sub, obj, p); err != nil {
				return err
			}
			return c.SubResource(sub).Patch(ctx, obj, p, opts...)
		},
	}).Build()
	if err := a.Create(t.Context(), &rkev1.CustomMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "one", UID: "uid",
		Finalizers: []string{"theirs"}}}); err != nil {
		t.Fatal(err)
	}
	return a
}

func (a *api) read() *rkev1.CustomMachine {
	a.t.Helper()
	object := &rkev1.CustomMachine{}
	if err := a.Get(a.t.Context(), client.ObjectKey{Namespace: "ns", Name: "one"}, object); err != nil {
		a.t.Fatal(err)
	}
	return object
}

// theirs writes a condition of another controller.
func (a *api) theirs(message string) {
	a.t.Helper()
	object := a.read()
	conditions.Set(object, metav1.Condition{Type: "Theirs", Status: metav1.ConditionTrue, Reason: "Seen", Message: message})
	if err := a.Status().Update(a.t.Context(), object); err != nil {
		a.t.Fatal(err)
	}
}

func ready(message string) metav1.Condition {
	return metav1.Condition{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Ready", Message: message}
}

// messages are the conditions of the stored object with their messages.
func (a *api) messages() map[string]string {
	out := map[string]string{}
	for _, c := range a.read().Status.Conditions {
		out[c.Type] = c.Message
	}
	return out
}

// TestOneWrite: conditions and status in one request, and none where nothing has changed.
func TestOneWrite(t *testing.T) {
	a := newAPI(t)
	for i, want := range []int{1, 0, 0} {
		a.writes = nil
		object := a.read()
		helper := NewHelper(a, object, "test", "Ready")
		object.Status.Ready = true
		conditions.Set(object, ready("now"))
		if err := helper.Patch(t.Context(), object); err != nil {
			t.Fatal(err)
		}
		if len(a.writes) != want {
			t.Errorf("reconcile %d wrote %d times, want %d: %q", i, len(a.writes), want, a.writes)
		}
		if object.ResourceVersion != a.read().ResourceVersion {
			t.Errorf("reconcile %d: the object has the resource version %s, stored is %s", i, object.ResourceVersion, a.read().ResourceVersion)
		}
	}
	if got := a.read(); !got.Status.Ready || !conditions.IsTrue(got, "Ready") {
		t.Errorf("stored is %+v", got.Status)
	}
}

// TestOrder: what conditions speak of is there before them, and the status of what is being deleted before its last finalizer goes.
func TestOrder(t *testing.T) {
	for _, deleting := range []bool{false, true} {
		a := newAPI(t)
		if deleting {
			if err := a.Delete(t.Context(), a.read()); err != nil {
				t.Fatal(err)
			}
		}
		object := a.read()
		helper := NewHelper(a, object, "test", "Ready")
		conditions.Set(object, ready(""))
		object.Status.Ready = true
		object.Spec.ProviderID = "p"
		object.Finalizers = nil
		if err := helper.Patch(t.Context(), object); err != nil {
			t.Fatal(err)
		}
		want := []string{"object", "status"}
		if deleting {
			want = []string{"status", "object"}
		}
		var got []string
		for _, w := range a.writes {
			kind, _, _ := strings.Cut(w, " ")
			got = append(got, kind)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("deleting %v (-want +got):\n%s", deleting, diff)
		}
		for _, w := range a.writes {
			if strings.HasPrefix(w, "object") == strings.Contains(w, `"status"`) || strings.HasPrefix(w, "status") == strings.Contains(w,
				"finalizers") {
				t.Errorf("deleting %v: not where it belongs: %s", deleting, w)
			}
		}
	}
}

// TestForeignChanges: what another client changes while the status of an object in deletion is written stays changed.
func TestForeignChanges(t *testing.T) {
	for name, test := range map[string]struct {
		theirs func(*rkev1.CustomMachine)
		ours   func(*rkev1.CustomMachine)
		want   func(*rkev1.CustomMachine) bool
		fails  bool
	}{
		"an annotation": {
			theirs: func(m *rkev1.CustomMachine) { delete(m.Annotations, "paused") },
			ours:   func(m *rkev1.CustomMachine) { m.Annotations["ours"] = "set" },
			want: func(m *rkev1.CustomMachine) bool {
				return cmp.Equal(m.Annotations, map[string]string{"kept": "", "ours": "set"})
			},
		},
		"the spec": {
			theirs: func(m *rkev1.CustomMachine) { m.Spec.ProviderID = "theirs" },
			ours:   func(m *rkev1.CustomMachine) { m.Finalizers = m.Finalizers[1:] },
			want:   func(m *rkev1.CustomMachine) bool { return m.Spec.ProviderID == "theirs" && len(m.Finalizers) == 1 },
		},
		"the spec that is ours to change": {
			theirs: func(m *rkev1.CustomMachine) { m.Spec.ProviderID, m.Generation = "theirs", m.Generation+1 },
			ours:   func(m *rkev1.CustomMachine) { m.Spec.ProviderID = "ours" },
			want:   func(m *rkev1.CustomMachine) bool { return m.Spec.ProviderID == "theirs" },
			fails:  true,
		},
		"a finalizer": {
			theirs: func(m *rkev1.CustomMachine) { m.Finalizers = append(m.Finalizers, "new") },
			ours:   func(m *rkev1.CustomMachine) { m.Finalizers = m.Finalizers[1:] },
			want:   func(m *rkev1.CustomMachine) bool { return cmp.Equal(m.Finalizers, []string{"theirs", "more", "new"}) },
			fails:  true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAPI(t)
			begin := a.read()
			begin.Annotations = map[string]string{"paused": "", "kept": ""}
			begin.Finalizers = append(begin.Finalizers, "more")
			if err := errors.Join(a.Update(t.Context(), begin), a.Delete(t.Context(), begin)); err != nil {
				t.Fatal(err)
			}
			object := a.read()
			helper := NewHelper(a, object, "test", "Ready")
			conditions.Set(object, ready(""))
			changed := a.read()
			test.theirs(changed)
			if err := a.Update(t.Context(), changed); err != nil {
				t.Fatal(err)
			}
			test.ours(object)
			if err := helper.Patch(t.Context(), object); (err != nil) != test.fails || err != nil && !apierrors.IsConflict(err) {
				t.Fatal(err)
			}
			if got := a.read(); !test.want(got) {
				t.Errorf("stored is %+v", got)
			}
		})
	}
}

// TestForeignConditions: a condition that another controller writes in between is never lost, whether or not the cache has seen it.
func TestForeignConditions(t *testing.T) {
	for _, behind := range []bool{false, true} {
		t.Run(fmt.Sprintf("cache behind %v", behind), func(t *testing.T) {
			a := newAPI(t)
			a.theirs("old")
			object := a.read()
			helper := NewHelper(a, object, "test", "Ready")
			stale := a.read()
			a.before = func() {
				a.before = nil
				a.theirs("new")
				if behind {
					a.cached = stale
				}
			}
			conditions.Set(object, ready("ours"))
			object.Status.Ready = true
			err := helper.Patch(t.Context(), object)
			a.cached = nil
			want := map[string]string{"Theirs": "new", "Ready": "ours"}
			if behind {
				delete(want, "Ready")
			}
			if apierrors.IsConflict(err) != behind || err != nil && !behind {
				t.Errorf("the error is %v", err)
			}
			if diff := cmp.Diff(want, a.messages()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if a.read().Status.Ready == behind {
				t.Errorf("status.ready is %v", a.read().Status.Ready)
			}
		})
	}
}

// TestNotOwned: a condition that is not declared is not written, whatever was done to the object in memory.
func TestNotOwned(t *testing.T) {
	a := newAPI(t)
	a.theirs("as it is")
	object := a.read()
	helper := NewHelper(a, object, "test", "Ready")
	conditions.Set(object, metav1.Condition{Type: "Theirs", Status: metav1.ConditionFalse, Reason: "Mine"})
	conditions.Set(object, metav1.Condition{Type: "Other", Status: metav1.ConditionFalse, Reason: "Mine"})
	conditions.Set(object, ready("ours"))
	if err := helper.Patch(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"Theirs": "as it is", "Ready": "ours"}, a.messages()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	conditions.Delete(object, "Ready")
	helper = NewHelper(a, a.read(), "test", "Ready")
	if err := helper.Patch(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"Theirs": "as it is"}, a.messages()); diff != "" {
		t.Errorf("after a removal (-want +got):\n%s", diff)
	}
}

// TestLongMessages: what is too long is cut once and not written again.
func TestLongMessages(t *testing.T) {
	a := newAPI(t)
	long := "\xff" + strings.Repeat("ä", message.MaxCondition)
	for i, want := range []int{1, 0} {
		a.writes = nil
		if err := Conditions(t.Context(), a, a.read(), "test", ready(long)); err != nil {
			t.Fatal(err)
		}
		object := a.read()
		helper := NewHelper(a, object, "test", "Ready")
		conditions.Set(object, ready(long))
		if err := helper.Patch(t.Context(), object); err != nil {
			t.Fatal(err)
		}
		if len(a.writes) != want {
			t.Errorf("round %d wrote %d times, want %d", i, len(a.writes), want)
		}
	}
	got := a.messages()["Ready"]
	if len(got) > message.MaxCondition || !strings.HasSuffix(got, " more bytes)") {
		t.Errorf("%d bytes are stored, the end is %q", len(got), got[len(got)-30:])
	}
}

// TestGone: there is nothing to say about what is not there any more, and nothing to say to what has its name.
func TestGone(t *testing.T) {
	a := newAPI(t)
	object := a.read()
	helper := NewHelper(a, object, "test", "Ready")
	remove := a.read()
	remove.Finalizers = nil
	if err := errors.Join(a.Update(t.Context(), remove), a.Delete(t.Context(), remove)); err != nil {
		t.Fatal(err)
	}
	conditions.Set(object, ready(""))
	if err := helper.Patch(t.Context(), object); err != nil {
		t.Errorf("after a deletion: %v", err)
	}
	again := &rkev1.CustomMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "one", UID: "other",
		Labels: map[string]string{"a": "b"}}}
	if err := a.Create(t.Context(), again); err != nil {
		t.Fatal(err)
	}
	again.Labels = nil
	if err := a.Update(t.Context(), again); err != nil {
		t.Fatal(err)
	}
	if err := helper.Patch(t.Context(), object); !apierrors.IsConflict(err) {
		t.Errorf("after it was made again: %v", err)
	}
	if got := a.messages(); len(got) > 0 {
		t.Errorf("the new object has %v", got)
	}
}
