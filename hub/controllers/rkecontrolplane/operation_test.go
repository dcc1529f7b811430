package rkecontrolplane

import (
	"bytes"
	"context"
	"slices"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"sigs.k8s.io/cluster-api/util/conditions"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	"github.com/drover-dev/drover/hub/plan/operation"
	"github.com/drover-dev/drover/hub/plan/render"
	"github.com/drover-dev/drover/hub/plan/rollout"
	"github.com/drover-dev/drover/hub/util/operations"
	"github.com/drover-dev/drover/plans"
)

// of is an operation on a cluster in a phase.
func of[T operationv1.Operation](op T, cluster string, phase operationv1.Phase) T {
	op.SetNamespace(controlPlaneKey.Namespace)
	op.SetName("one")
	op.SetUID(types.UID(operationv1.Kind(op)))
	op.CommonSpec().ClusterRef.Name, op.CommonStatus().Phase = cluster, phase
	return op
}

// TestCheckOperation: no decision that harms a server is made with another operation than the API server has.
func TestCheckOperation(t *testing.T) {
	restore := func(phase operationv1.Phase) operationv1.Operation {
		return of(&operationv1.ETCDSnapshotRestore{}, "c", phase)
	}
	save := of(&operationv1.ETCDSnapshotSave{}, "c", operationv1.PhasePending)
	began := restore(operationv1.PhaseInProgress)
	for name, tc := range map[string]struct {
		live  []operationv1.Operation
		known operationv1.Operation // as the cache has it: of the same version as in the API server if it is in the same phase
		want  bool
	}{
		"none":                           {},
		"known":                          {live: []operationv1.Operation{began}, known: began},
		"the cache has none":             {live: []operationv1.Operation{restore("")}, want: true},
		"the cache has an earlier one":   {live: []operationv1.Operation{began}, known: restore(""), want: true},
		"it has ended":                   {live: []operationv1.Operation{restore(operationv1.PhaseSucceeded)}, known: began, want: true},
		"it was deleted":                 {known: began, want: true},
		"the cache has one that waits":   {live: []operationv1.Operation{began, save}, known: save, want: true},
		"the cache lacks one that waits": {live: []operationv1.Operation{began, save}, known: began},
		"one that has ended":             {live: []operationv1.Operation{restore(operationv1.PhaseFailed)}},
		"one of another cluster":         {live: []operationv1.Operation{of(&operationv1.ETCDSnapshotRestore{}, "d", "")}},
		"the cache lacks a restore, which comes first": {live: []operationv1.Operation{restore(""), save}, known: save, want: true},
	} {
		r, cached, next := bigCluster(t, 1)
		api, _ := apiOf(t, cached)
		s := next()
		if tc.known != nil {
			s.operation, s.observedOperation = tc.known, operations.Copy(tc.known)
		}
		for _, op := range tc.live {
			stored := operations.Copy(op)
			if err := api.Create(t.Context(), stored); err != nil {
				t.Fatal(err)
			}
			if tc.known != nil && stored.GetUID() == tc.known.GetUID() &&
				stored.CommonStatus().Phase == tc.known.CommonStatus().Phase {
				s.observedOperation = stored
			}
		}
		r.manager, r.Live = manager{shelf: cached}, api
		if err := r.checkOperation(t.Context(), s); (err != nil) != tc.want || err != nil && !apierrors.IsConflict(err) {
			t.Errorf("%s: got %v, want a conflict: %v", name, err, tc.want)
		}
	}
}

// TestLiveOperations: nothing of other clusters is read from an API server that selects by the Cluster. One that does not know the field
// returns all of the namespace.
func TestLiveOperations(t *testing.T) {
	for selects, wantRead := range map[bool]int{true: 1, false: 2} {
		r, cached, next := bigCluster(t, 1)
		read := 0
		r.Live = apiBuilder(t, cached).WithObjects(of(&operationv1.ETCDSnapshotRestore{}, "c", ""),
			of(&operationv1.ETCDSnapshotSave{}, "d", "")).WithInterceptorFuncs(interceptor.Funcs{
			List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
				if (&client.ListOptions{}).ApplyOptions(opts).FieldSelector != nil && !selects {
					return apierrors.NewBadRequest("field label not supported: spec.clusterRef.name")
				}
				err := c.List(ctx, list, opts...)
				read += len(operations.Items(list))
				return err
			},
		}).Build()
		live, err := r.liveOperations(t.Context(), next())
		if err != nil || len(live) != 1 || operationv1.Kind(live[0]) != "ETCDSnapshotRestore" || read != wantRead {
			t.Errorf("selects %t: got %v, %v, and read %d operations, want %d", selects, live, err, read, wantRead)
		}
	}
}

// TestRolloutBesideRestore: no server changes while a restore exists that the cache does not have yet. A reconcile that changes none lists
// no operations past the cache.
func TestRolloutBesideRestore(t *testing.T) {
	r, cached, next := bigCluster(t, 4)
	api, asked := apiOf(t, cached)
	r.manager, r.Live = manager{shelf: cached}, api
	r.Cache = r.manager
	if err := r.reconcileInMemory(next()); err != nil {
		t.Fatal(err)
	}
	if len(asked.lists) > 0 {
		t.Errorf("a cluster at rest costs the lists %v", asked.lists)
	}
	restore := of(&operationv1.ETCDSnapshotRestore{}, "c", "")
	if err := api.Create(t.Context(), restore); err != nil {
		t.Fatal(err)
	}
	change := func() *scope {
		s := next()
		s.controlPlane.Spec.ProvisionGeneration = 7
		return s
	}
	s := change()
	if err := r.reconcileInMemory(s); !apierrors.IsConflict(err) || s.outcome != nil {
		t.Errorf("got %v, want a conflict, and decided %+v", err, s.outcome)
	}
	if err := api.Delete(t.Context(), restore); err != nil {
		t.Fatal(err)
	}
	s = change()
	if err := r.reconcileInMemory(s); err != nil || !slices.ContainsFunc(s.machines, func(m *machine) bool { return m.decision.Deliver }) {
		t.Errorf("nothing changes after the restore is gone: %v", err)
	}
}

// TestTaskOfAnotherVersion: a machine that has begun the task of a step that this version of the hub does not know keeps its plan to the
// byte, whatever changes meanwhile.
func TestTaskOfAnotherVersion(t *testing.T) {
	r, cached, next := bigCluster(t, 3)
	began := of(&operationv1.ETCDSnapshotSave{}, "c", operationv1.PhaseInProgress)
	began.Status.Step = "Replicate"
	s := next()
	if err := r.reconcileInMemory(s); err != nil {
		t.Fatal(err)
	}
	m, secret := s.machines[1], &cached.secrets.Items[1]
	plan := render.WithTask(s.inputs, m.inputs, m.plan, began, operation.Task{Step: began.Status.Step, Name: operation.TaskPing})
	encoded, err := plan.Encode()
	if err != nil {
		t.Fatal(err)
	}
	encoded = append([]byte(`{"ofAnotherVersion":true,`), encoded[1:]...)
	plans.Deliver(secret.Data, encoded, plans.Unlimited, m.inputs.FailureThreshold())
	if err := r.Signer.Sign(secret.Data, nil, secret.Namespace+"/"+secret.Name); err != nil {
		t.Fatal(err)
	}
	secret.ResourceVersion = "2"

	s = next()
	s.operation, s.observedOperation = began, operations.Copy(began)
	if err := r.reconcileInMemory(s); err != nil {
		t.Fatal(err)
	}
	if c := conditions.Get(s.operation, operationv1.SucceededCondition); c == nil || c.Reason != operation.ReasonWaitingForHub {
		t.Errorf("the operation says %+v", c)
	}
	if m := s.machines[1]; m.state.Change != rollout.ChangeNone || m.decision.Deliver || !bytes.Equal(m.encoded, encoded) {
		t.Errorf("change %q, delivers: %t, plan %s", m.state.Change, m.decision.Deliver, m.encoded)
	}
}

// TestOperationOfABackup: a hub that was restored while an operation was in progress gives no machine its task.
func TestOperationOfABackup(t *testing.T) {
	r, _, next := bigCluster(t, 3)
	r.Signer.SetRestored(time.Now())
	began := of(&operationv1.ETCDSnapshotSave{}, "c", operationv1.PhaseInProgress)
	began.Status.Step = operationv1.StepSave
	began.Status.Machines = []operationv1.MachineStatus{{Name: "m0000", Phase: operationv1.PhaseInProgress}}
	s := next()
	s.operation, s.observedOperation = began, operations.Copy(began)
	if err := r.reconcileInMemory(s); err != nil {
		t.Fatal(err)
	}
	if c := conditions.Get(s.operation, operationv1.SucceededCondition); c == nil || c.Reason != operation.ReasonHubRestored {
		t.Errorf("the operation says %+v", c)
	}
	if i := slices.IndexFunc(s.machines, func(m *machine) bool { return m.state.Task }); i >= 0 {
		t.Errorf("%s has a task", s.machines[i].machine.Name)
	}
}

// TestLeftOut: a machine that an operation goes on without counts for no limit.
func TestLeftOut(t *testing.T) {
	r, _, next := bigCluster(t, 5)
	began := of(&operationv1.CertificateRotation{}, "c", operationv1.PhaseInProgress)
	now := metav1.Now()
	began.Status.Step, began.Status.LastUpdated = operationv1.StepRotate, &now
	began.Status.Machines = []operationv1.MachineStatus{
		{Name: "m0003", Phase: operationv1.PhaseCanceled}, {Name: "m0004", Phase: operationv1.PhaseInProgress}}
	s := next()
	s.operation, s.observedOperation = began, operations.Copy(began)
	if err := r.reconcileInMemory(s); err != nil {
		t.Fatal(err)
	}
	for i, m := range s.machines {
		if m.state.LeftOut != (i == 3) || m.state.Task != (i == 4) {
			t.Errorf("%s is left out: %t, has a task: %t", m.machine.Name, m.state.LeftOut, m.state.Task)
		}
	}
}
