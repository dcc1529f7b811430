package patch

import (
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"sigs.k8s.io/cluster-api/util/conditions"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/testenv/fakeclient"
)

var oneKey = client.ObjectKey{Namespace: "ns", Name: "one"}

// behind is a client over an API server whose cache stays at what it is now.
func behind(t *testing.T) (*api, client.Client) {
	t.Helper()
	a := newAPI(t)
	c, err := wrap(a, nil)
	if err != nil {
		t.Fatal(err)
	}
	a.cached = a.read()
	return a, c
}

func get(t *testing.T, c client.Client) *rkev1.CustomMachine {
	t.Helper()
	object := &rkev1.CustomMachine{}
	if err := c.Get(t.Context(), oneKey, object); err != nil {
		t.Fatal(err)
	}
	return object
}

// mergePatch is a merge patch with this content.
func mergePatch(t *testing.T, content any) client.Patch {
	t.Helper()
	raw, err := json.Marshal(content)
	if err != nil {
		t.Fatal(err)
	}
	return client.RawPatch(types.MergePatchType, raw)
}

func annotate(t *testing.T, key string, value any) client.Patch {
	return mergePatch(t, map[string]any{"metadata": map[string]any{"annotations": map[string]any{key: value}}})
}

// TestReadsItsPatches: of objects and of their status, of either form, until the cache has them or something newer.
func TestReadsItsPatches(t *testing.T) {
	a, c := behind(t)
	object := get(t, c)
	if err := c.Patch(t.Context(), object, annotate(t, "first", "yes")); err != nil {
		t.Fatal(err)
	}
	if got := get(t, c); got.Annotations["first"] != "yes" || got.ResourceVersion != object.ResourceVersion {
		t.Fatalf("after a patch: %v, version %s, not %s", got.Annotations, got.ResourceVersion, object.ResourceVersion)
	}

	// What a caller does with its objects is no concern of other callers.
	object.Annotations["first"] = "changed by the caller"
	get(t, c).Annotations["first"] = "changed by another"

	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "rke.cattle.io/v1", "kind": "CustomMachine",
		"metadata": map[string]any{"namespace": "ns", "name": "one"}}}
	if err := c.Patch(t.Context(), u, annotate(t, "second", "yes")); err != nil {
		t.Fatal(err)
	}
	latest := get(t, c)
	if diff := cmp.Diff(map[string]string{"first": "yes", "second": "yes"}, latest.Annotations); diff != "" {
		t.Fatal("after a patch of an unstructured object:", diff)
	}

	// With the version that Get has given, there is no conflict.
	base := latest.DeepCopy()
	conditions.Set(latest, ready("written"))
	if err := c.Status().Patch(t.Context(), latest, client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{})); err != nil {
		t.Fatal(err)
	}
	if got := get(t, c); conditions.GetMessage(got, "Ready") != "written" {
		t.Fatalf("after a patch of the status: %+v", got.Status.Conditions)
	}

	a.cached = nil
	a.theirs("newer")
	a.cached = a.read()
	if got := get(t, c); conditions.GetMessage(got, "Theirs") != "newer" {
		t.Fatalf("after the cache has a newer version: %+v", got.Status.Conditions)
	}
	if kept := len(c.(*caughtUp).written.objects); kept != 0 {
		t.Errorf("%d objects are kept that the cache has", kept)
	}
}

// TestManagedFieldsAsInTheCache: what is read after a patch has the managed fields that the cache has, so that nobody sends the difference.
func TestManagedFieldsAsInTheCache(t *testing.T) {
	cached := &rkev1.CustomMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "one", UID: "1", ResourceVersion: "1"}}
	patched := cached.DeepCopy()
	patched.ResourceVersion = "2"
	patched.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "test", FieldsV1: metav1.NewFieldsV1(`{"f:spec":{}}`)}}
	gvk := rkev1.GroupVersion.WithKind("CustomMachine")
	w := newWritten(time.Minute)
	w.remember(gvk, patched)
	fields := w.newerThan(gvk, oneKey, cached).GetManagedFields()
	if len(fields) != 1 || fields[0].FieldsV1.GetRawString() != "{}" {
		t.Errorf("it has the managed fields %+v", fields)
	}
}

// TestNothingLeftOver: what a patch answers is the object, without what was in the one that was sent.
func TestNothingLeftOver(t *testing.T) {
	a, c := behind(t)
	object := get(t, c)
	conditions.Set(object, metav1.Condition{Type: "Ready", Status: metav1.ConditionFalse, Reason: "Waiting", ObservedGeneration: 7})
	if err := c.Status().Update(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	a.cached = nil
	stored := a.read()
	stored.Status.Conditions[0].ObservedGeneration = 0
	if err := a.Status().Update(t.Context(), stored); err != nil {
		t.Fatal(err)
	}
	object.Annotations = map[string]string{"mine": "only here"}
	if err := c.Patch(t.Context(), object, annotate(t, "first", "yes")); err != nil {
		t.Fatal(err)
	}
	want := a.read()
	for name, got := range map[string]*rkev1.CustomMachine{"the patched object": object, "a read": get(t, c)} {
		got.TypeMeta = want.TypeMeta
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s differs from the stored object:\n%s", name, diff)
		}
	}
}

// TestCacheCounts: what else the cache says is not overruled.
func TestCacheCounts(t *testing.T) {
	t.Run("dry run", func(t *testing.T) {
		_, c := behind(t)
		if err := c.Patch(t.Context(), get(t, c), annotate(t, "first", "yes"), client.DryRunAll); err != nil {
			t.Fatal(err)
		}
		if got := get(t, c); got.Annotations["first"] != "" {
			t.Error("a patch that was not carried out is read")
		}
	})
	t.Run("another object of that name", func(t *testing.T) {
		a, c := behind(t)
		if err := c.Patch(t.Context(), get(t, c), annotate(t, "first", "yes")); err != nil {
			t.Fatal(err)
		}
		a.cached.UID, a.cached.ResourceVersion = "another", "1"
		if got := get(t, c); got.UID != "another" {
			t.Error("the patched object is read, which another has replaced")
		}
	})
	t.Run("deleted", func(t *testing.T) {
		a, c := behind(t)
		if err := c.Patch(t.Context(), get(t, c), annotate(t, "first", "yes")); err != nil {
			t.Fatal(err)
		}
		a.cached = nil
		stored := a.read()
		stored.Finalizers = nil
		if err := a.Update(t.Context(), stored); err != nil {
			t.Fatal(err)
		}
		if err := a.Delete(t.Context(), stored); err != nil {
			t.Fatal(err)
		}
		if err := c.Get(t.Context(), oneKey, &rkev1.CustomMachine{}); !apierrors.IsNotFound(err) {
			t.Errorf("a deleted object is read: %v", err)
		}
		if kept := len(c.(*caughtUp).written.objects); kept != 0 {
			t.Errorf("%d objects are kept that do not exist", kept)
		}
	})
	t.Run("not cached", func(t *testing.T) {
		scheme := fakeclient.Scheme(t, corev1.AddToScheme)
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "one"}}
		c, err := wrap(fake.NewClientBuilder().WithScheme(scheme).WithObjects(secret).Build(), []client.Object{&corev1.Secret{}})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Patch(t.Context(), secret, annotate(t, "first", "yes")); err != nil {
			t.Fatal(err)
		}
		if kept := len(c.(*caughtUp).written.objects); kept != 0 {
			t.Error("a Secret is kept in memory, which the cache does not hold")
		}
	})
}

// TestOutOfOrder: the answer to the later patch counts, whichever arrives first.
func TestOutOfOrder(t *testing.T) {
	a, c := behind(t)
	w := c.(*caughtUp).written
	gvk := rkev1.GroupVersion.WithKind("CustomMachine")
	for _, version := range []string{"2000", "3000", "1500"} {
		object := a.cached.DeepCopy()
		object.ResourceVersion = version
		w.remember(gvk, object)
	}
	if got := get(t, c); got.ResourceVersion != "3000" {
		t.Errorf("read version %s, not 3000", got.ResourceVersion)
	}
}

// TestForgets: what nobody reads again is not kept for ever, and is not read when it is old.
func TestForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWritten(kept)
		gvk := rkev1.GroupVersion.WithKind("CustomMachine")
		for _, name := range []string{"one", "two"} {
			w.remember(gvk, &rkev1.CustomMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, ResourceVersion: "2"}})
			time.Sleep(kept / 2)
		}
		time.Sleep(time.Millisecond)
		synctest.Wait()
		if len(w.objects) != 1 {
			t.Errorf("%d objects are kept after %s, not the last only", len(w.objects), kept)
		}
		cached := &rkev1.CustomMachine{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "1"}}
		time.Sleep(kept - 10*time.Millisecond)
		if w.newerThan(gvk, client.ObjectKey{Namespace: "ns", Name: "two"}, cached) != nil {
			t.Error("what is older than that is read")
		}
		time.Sleep(2 * kept)
		synctest.Wait()
		if len(w.objects) != 0 || w.sweeps {
			t.Errorf("%d objects are kept, and a timer runs: %t", len(w.objects), w.sweeps)
		}
	})
}
