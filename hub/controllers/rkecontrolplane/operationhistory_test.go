package rkecontrolplane

import (
	"fmt"
	"slices"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	"github.com/drover-dev/drover/hub/testenv/fakeclient"
)

// TestDeleteOutdated: of the operations that generations have asked for, the last few of a kind are kept. Others stay, and so do restores.
func TestDeleteOutdated(t *testing.T) {
	var all []operationv1.Operation
	add := func(op operationv1.Operation, name, label string, phase operationv1.Phase) operationv1.Operation {
		op = of(op, "c", phase)
		op.SetName(name)
		op.CommonSpec().TTL = -1
		if label != "" {
			op.SetLabels(map[string]string{label: name})
		}
		all = append(all, op)
		return op
	}
	const saved = "rke.cattle.io/etcd-snapshot-create"
	add(&operationv1.ETCDSnapshotSave{}, "of-a-user", "", operationv1.PhaseSucceeded)
	add(&operationv1.ETCDSnapshotSave{}, "paused", saved, operationv1.PhaseSucceeded).CommonSpec().Paused = true
	add(&operationv1.ETCDSnapshotSave{}, "limited", saved, operationv1.PhaseSucceeded).CommonSpec().TTL = 86400
	add(&operationv1.ETCDSnapshotSave{}, "waits", saved, operationv1.PhasePending)
	for i := range 7 {
		add(&operationv1.ETCDSnapshotSave{}, fmt.Sprint(i), saved, operationv1.PhaseFailed)
		add(&operationv1.ETCDSnapshotRestore{}, fmt.Sprint("restore-", i), restoreLabel, operationv1.PhaseFailed)
	}
	want := slices.DeleteFunc(names(all), func(name string) bool { return name == "0" || name == "1" })
	objects := make([]client.Object, 0, len(all))
	for _, op := range all {
		objects = append(objects, op)
	}
	c := fake.NewClientBuilder().WithScheme(fakeclient.Scheme(t, operationv1.AddToScheme)).WithObjects(objects...).Build()
	r := &Reconciler{Client: c}
	for range 2 {
		var err error
		if all, err = r.deleteOutdated(t.Context(), all); err != nil {
			t.Fatal(err)
		}
		if got := names(all); !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	}
	var list operationv1.ETCDSnapshotSaveList
	if err := c.List(t.Context(), &list); err != nil || len(list.Items) != 9 {
		t.Errorf("%d are left, %v", len(list.Items), err)
	}
}

func names(all []operationv1.Operation) (out []string) {
	for _, op := range all {
		out = append(out, op.GetName())
	}
	return out
}
