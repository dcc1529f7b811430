package operations

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	"github.com/drover-dev/drover/hub/testenv/fakeclient"
)

var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

func save(name string, created time.Time, phase operationv1.Phase) *operationv1.ETCDSnapshotSave {
	op := &operationv1.ETCDSnapshotSave{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, CreationTimestamp: metav1.NewTime(created)}}
	op.Spec.ClusterRef.Name, op.Status.Phase = "prod", phase
	return op
}

func newClient(t *testing.T, objects ...client.Object) client.WithWatch {
	return fake.NewClientBuilder().WithScheme(fakeclient.Scheme(t, operationv1.AddToScheme)).
		WithStatusSubresource(&operationv1.ETCDSnapshotSave{}).WithObjects(objects...).Build()
}

func TestOf(t *testing.T) {
	other, elsewhere := save("other", noon, ""), save("elsewhere", noon, "")
	other.Spec.ClusterRef.Name, elsewhere.Namespace = "another", "elsewhere"
	deleted := save("deleted", noon, "")
	deleted.Finalizers, deleted.DeletionTimestamp = []string{"a/b"}, &metav1.Time{Time: noon}
	c := newClient(t, save("second", noon.Add(time.Second), ""), save("first", noon, ""), save("also-first", noon, ""), other, elsewhere,
		deleted)
	checkOf(t, c)
}

func checkOf(t *testing.T, from client.Reader, opts ...client.ListOption) {
	t.Helper()
	found, err := Of(t.Context(), from, client.ObjectKey{Namespace: "ns", Name: "prod"}, opts...)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, op := range found {
		names = append(names, op.GetName())
	}
	if got := strings.Join(names, " "); got != "also-first first second" {
		t.Errorf("got %s", got)
	}
}

// indexes adds indexes to a client.
type indexes struct{ builder *fake.ClientBuilder }

func (i indexes) IndexField(_ context.Context, object client.Object, field string, values client.IndexerFunc) error {
	i.builder.WithIndex(object, field, values)
	return nil
}

// TestOfIndexed: with the index, nothing but the operations of the cluster is read from the cache.
func TestOfIndexed(t *testing.T) {
	other := save("other", noon, "")
	other.Spec.ClusterRef.Name = "another"
	builder := fake.NewClientBuilder().WithScheme(fakeclient.Scheme(t, operationv1.AddToScheme)).
		WithObjects(save("second", noon.Add(time.Second), ""), save("first", noon, ""), save("also-first", noon, ""), other)
	if err := SetupIndexes(t.Context(), indexes{builder}); err != nil {
		t.Fatal(err)
	}
	read := 0
	c := interceptor.NewClient(builder.Build(), interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList,
		opts ...client.ListOption) error {
		err := c.List(ctx, list, opts...)
		read += len(Items(list))
		return err
	}})
	checkOf(t, c, Indexed(client.ObjectKey{Namespace: "ns", Name: "prod"}))
	if read != 3 {
		t.Errorf("%d operations were read", read)
	}
}

// TestWriteEnd: the end of an operation is an annotation as well, and counts once.
func TestWriteEnd(t *testing.T) {
	op := save("first", noon, operationv1.PhaseInProgress)
	c := newClient(t, op)
	registry := prometheus.NewRegistry()
	w := Writer{Client: c, FieldOwner: "test", Metrics: NewMetrics(registry, c)}
	observed := &operationv1.ETCDSnapshotSave{}
	read := func() {
		t.Helper()
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(op), observed); err != nil {
			t.Fatal(err)
		}
	}
	read()
	decided, at := Copy(observed), metav1.NewTime(noon.Add(40*time.Second))
	status := decided.CommonStatus()
	status.Phase, status.TerminatedAt = operationv1.PhaseSucceeded, &at
	owners := []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "c", UID: "u"}}
	if err := w.Write(t.Context(), observed, decided, owners); err != nil {
		t.Fatal(err)
	}
	read()
	if observed.Status.Phase != operationv1.PhaseSucceeded || observed.Annotations[operationv1.EndedAnnotation] != "Succeeded" ||
		len(observed.OwnerReferences) != 1 {
		t.Errorf("got %+v", observed)
	}
	version := observed.ResourceVersion
	if err := w.Write(t.Context(), observed, Copy(observed), nil); err != nil {
		t.Fatal(err)
	}
	if read(); observed.ResourceVersion != version {
		t.Error("what has not changed was written")
	}

	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	ends := map[string]string{}
	for _, family := range families {
		for _, sample := range family.GetMetric() {
			if h, labels := sample.GetHistogram(), sample.GetLabel(); h != nil && len(h.GetBucket()) == 10 {
				ends[labels[0].GetValue()+" "+labels[1].GetValue()] = fmt.Sprint(h.GetSampleCount(), " in ", h.GetSampleSum(), " s")
			}
		}
	}
	// Those that have not happened are there, too: the first one is an increase.
	if ends["ETCDSnapshotSave Succeeded"] != "1 in 40 s" || ends["TokenRotation Failed"] != "0 in 0 s" ||
		len(ends) != 3*len(operationv1.Kinds()) {
		t.Errorf("got %q", ends)
	}
	if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
		t.Errorf("%v %v", problems, err)
	}
}

// A hub that stops between the two writes of an end loses neither the reason nor the annotation.
func TestWriteEndIsCutOff(t *testing.T) {
	op := save("first", noon, operationv1.PhaseInProgress)
	op.Spec.TTL, op.Status.Step = -1, operationv1.StepSave
	stops := errors.New("the hub stops")
	c := interceptor.NewClient(newClient(t, op), interceptor.Funcs{Patch: func(context.Context, client.WithWatch, client.Object, client.Patch,
		...client.PatchOption) error {
		return stops
	}})
	w := Writer{Client: c, FieldOwner: "test"}
	observed := &operationv1.ETCDSnapshotSave{}
	read := func(from client.Client) {
		t.Helper()
		if err := from.Get(t.Context(), client.ObjectKeyFromObject(op), observed); err != nil {
			t.Fatal(err)
		}
	}
	read(c)
	decided, at := Copy(observed), metav1.NewTime(noon)
	status := decided.CommonStatus()
	status.Phase, status.Step, status.TerminatedAt = operationv1.PhaseFailed, "", &at
	meta.SetStatusCondition(&status.Conditions, metav1.Condition{Type: operationv1.SucceededCondition, Status: metav1.ConditionFalse,
		Reason: "MachineFailed", Message: "why"})
	if err := w.Write(t.Context(), observed, decided, nil); !errors.Is(err, stops) {
		t.Fatal(err)
	}
	read(c)
	if got := meta.FindStatusCondition(observed.Status.Conditions,
		operationv1.SucceededCondition); EndedIn(observed) != operationv1.PhaseFailed ||
		got == nil || got.Message != "why" {
		t.Fatalf("got %+v", observed)
	}
	inner := newClient(t, observed)
	w.Client = inner
	read(inner)
	if _, err := w.Expire(t.Context(), observed, EndedIn(observed), noon); err != nil {
		t.Fatal(err)
	}
	if read(inner); observed.Annotations[operationv1.EndedAnnotation] != "Failed" {
		t.Errorf("got %+v", observed)
	}
}

// An operation whose status was lost when it had ended says how.
func TestRecover(t *testing.T) {
	op := save("first", noon, operationv1.PhaseInProgress)
	op.Status.Step = operationv1.StepSave
	if !Recover(op, operationv1.PhaseSucceeded, noon) || Recover(op, operationv1.PhaseSucceeded, noon) {
		t.Error("it does not change the status once")
	}
	c := meta.FindStatusCondition(op.Status.Conditions, operationv1.SucceededCondition)
	if op.Status.Phase != operationv1.PhaseSucceeded || op.Status.Step != "" || op.Status.TerminatedAt == nil || c == nil ||
		c.Status != metav1.ConditionTrue || c.Reason != "Succeeded" {
		t.Errorf("got %+v", op.Status)
	}
}

func TestCollector(t *testing.T) {
	c := newClient(t, save("new", noon, ""), save("a", noon, operationv1.PhasePending), save("b", noon, operationv1.PhaseFailed))
	registry := prometheus.NewRegistry()
	NewMetrics(registry, c)
	samples, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, family := range samples {
		for _, sample := range family.GetMetric() {
			if family.GetName() != "drover_operations" {
				continue
			}
			labels := map[string]string{}
			for _, pair := range sample.GetLabel() {
				labels[pair.GetName()] = pair.GetValue()
			}
			if labels["kind"] == "ETCDSnapshotSave" {
				got[labels["phase"]] = sample.GetGauge().GetValue()
			}
		}
	}
	if len(got) != len(phases) || got["Pending"] != 2 || got["Failed"] != 1 || got["Succeeded"] != 0 {
		t.Errorf("got %v", got)
	}
}
