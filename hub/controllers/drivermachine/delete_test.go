package drivermachine

import (
	"context"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/drover-dev/drover/hub/nodedriver"
	"github.com/drover-dev/drover/hub/util/cause"
)

// TestForegroundDeletion: the garbage collector deletes an infrastructure machine while Cluster API still waits for hooks of its Machine,
// such as the removal of its member of etcd. What Cluster API does not wait for holds up no infrastructure machine.
func TestForegroundDeletion(t *testing.T) {
	const hook, preDrain = clusterv1.PreTerminateDeleteHookAnnotationPrefix + "/etcd", clusterv1.PreDrainDeleteHookAnnotationPrefix + "/x"
	now := &metav1.Time{Time: time.Unix(1, 0)}
	for name, tt := range map[string]struct {
		deleted *metav1.Time
		reason  string
		hooks   map[string]string
		waits   bool
	}{
		"the infrastructure machine alone": {hooks: map[string]string{hook: ""}, reason: clusterv1.MachineNotDeletingReason},
		"not seen by Cluster API yet":      {deleted: now, reason: clusterv1.MachineNotDeletingReason, waits: true},
		"drained":                          {deleted: now, reason: clusterv1.MachineDeletingDrainingNodeReason, waits: true},
		"with a hook, of an older version": {deleted: now, hooks: map[string]string{hook: ""}, waits: true},
		"of an older version":              {deleted: now},
		"its turn":                         {deleted: now, reason: clusterv1.MachineDeletingWaitingForInfrastructureDeletionReason},
		"before its drain":                 {deleted: now, hooks: map[string]string{preDrain: ""}, waits: true},
		"its turn, without a drain": {deleted: now, hooks: map[string]string{preDrain: ""},
			reason: clusterv1.MachineDeletingWaitingForInfrastructureDeletionReason},
	} {
		machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: tt.deleted, Annotations: tt.hooks}}
		if tt.reason != "" {
			machine.Status.Conditions = []metav1.Condition{{Type: clusterv1.MachineDeletingCondition, Reason: tt.reason}}
		}
		if got := isNeeded(machine); got != tt.waits {
			t.Errorf("%s: waits %v, want %v", name, got, tt.waits)
		}
		if !tt.waits {
			continue
		}
		s := &scope{object: &unstructured.Unstructured{Object: map[string]any{}}, machine: machine, stored: &stored{},
			cluster: &clusterv1.Cluster{}}
		s.object.SetFinalizers([]string{Finalizer})
		result, err := (&machines{}).reconcileDelete(t.Context(), s, nil) // it has no drivers
		if err != nil || result.RequeueAfter == 0 || s.gone {
			t.Errorf("%s: %+v, gone %v (%v)", name, result, s.gone, err)
		}
		s.cluster = nil
		if _, err := (&machines{}).reconcileDelete(t.Context(), s, cause.New("Inactive", "no driver")); err != nil || s.removal == nil {
			t.Errorf("%s: it waits for a Machine without a Cluster (%v)", name, err)
		}
	}
	if isNeeded(nil) {
		t.Error("a machine without a Machine waits")
	}
}

// TestForceWhileRemoving: a user can give up on a removal that hangs, in a process of the hub and in a Job.
func TestForceWhileRemoving(t *testing.T) {
	for name, ended := range map[string]error{"process": context.Canceled, "Job": nodedriver.ErrInterrupted} {
		h := newHub(t, &fakeDrivers{exists: true, remove: func(ctx context.Context) error {
			<-ctx.Done()
			return ended
		}})
		h.create(stateSecret(t))
		h.delete()
		for range 2 {
			if c, _ := h.reconcileTo("Deleted"); c == nil || c.Reason != "Deleting" {
				t.Fatalf("%s: %+v", name, c)
			}
		}
		h.change(force)
		h.reconcileTo("Deleted")
		select {
		case <-h.events:
		case <-time.After(10 * time.Second):
			t.Fatalf("%s: the removal goes on", name)
		}
		if c, _ := h.reconcileTo("Deleted"); c != nil {
			t.Errorf("%s: given up: %+v", name, c)
		}
	}
}
