package rkecontrolplane

import (
	"context"
	"crypto/ed25519"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"sigs.k8s.io/cluster-api/util/conditions"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/identity/signing"
	"github.com/drover-dev/drover/hub/plan/operation"
	"github.com/drover-dev/drover/hub/plan/rollout"
	"github.com/drover-dev/drover/hub/util/objects"
	"github.com/drover-dev/drover/hub/util/patch"
)

// unrestoredCluster is a cluster of three servers, whose objects and operations an API server has.
type unrestoredCluster struct {
	*testing.T
	client.WithWatch
	r    *Reconciler
	next func() *scope
	// tokens is the Secret with the cluster's tokens; nil where it does not matter.
	tokens *corev1.Secret
	// created counts the operations, and writes those of the RKEControlPlane beside its status, which are refused with an error.
	created, writes int
	refused         error
}

func newUnrestoredCluster(t *testing.T) *unrestoredCluster {
	t.Helper()
	r, in, next := bigCluster(t, 3)
	c := &unrestoredCluster{T: t, r: r, next: next}
	plane := next().controlPlane
	kinds := []client.Object{plane}
	for _, op := range operationv1.Kinds() {
		kinds = append(kinds, op)
	}
	c.WithWatch = apiBuilder(t, in).WithObjects(plane).WithStatusSubresource(kinds...).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(ctx context.Context, api client.WithWatch, object client.Object, opts ...client.CreateOption) error {
			c.created++
			object.SetUID(types.UID(object.GetName()))
			object.SetCreationTimestamp(metav1.Unix(int64(c.created), 0))
			return api.Create(ctx, object, opts...)
		},
		Patch: func(ctx context.Context, api client.WithWatch, object client.Object, p client.Patch, opts ...client.PatchOption) error {
			if _, is := object.(*rkev1.RKEControlPlane); is {
				if c.writes++; c.refused != nil {
					return c.refused
				}
			}
			return api.Patch(ctx, object, p, opts...)
		},
	}).Build()
	r.Client, r.Cache, r.Live = c, c, c
	if s := c.reconcile(); c.delivers(s) || c.writes > 0 {
		t.Fatalf("the cluster is not at rest: %d writes, %+v", c.writes, s.outcome)
	}
	return c
}

// try runs the phases of a reconcile that decide and deliver, and writes the status.
func (c *unrestoredCluster) try() (*scope, error) {
	s := c.next()
	s.controlPlane, s.cluster.Namespace = c.plane(), controlPlaneKey.Namespace
	if c.tokens != nil {
		s.setTokens(c.tokens)
	}
	s.patch = patch.NewHelper(c, s.controlPlane, fieldOwner, ownedConditions...)
	err := run(c.Context(), s, c.r.loadMachines, c.r.findOperation, c.r.plan, c.r.writeOperation, c.r.deliver)
	setStatus(s, err)
	return s, errors.Join(err, s.patch.Patch(c.Context(), s.controlPlane))
}

func (c *unrestoredCluster) reconcile() *scope {
	c.Helper()
	s, err := c.try()
	if err != nil {
		c.Fatal(err)
	}
	return s
}

func (c *unrestoredCluster) plane() *rkev1.RKEControlPlane {
	c.Helper()
	plane := &rkev1.RKEControlPlane{}
	c.read(controlPlaneKey.Name, plane)
	return plane
}

// read reads an object of the cluster's namespace, and reports whether it exists.
func (c *unrestoredCluster) read(name string, into client.Object) bool {
	c.Helper()
	found, err := objects.Get(c.Context(), c, client.ObjectKey{Namespace: controlPlaneKey.Namespace, Name: name}, into)
	if err != nil {
		c.Fatal(err)
	}
	return found
}

func (c *unrestoredCluster) must(err error) {
	c.Helper()
	if err != nil {
		c.Fatal(err)
	}
}

// ask asks for a restore, with a configuration that restarts all servers.
func (c *unrestoredCluster) ask(restore *rkev1.ETCDSnapshotRestore) {
	c.Helper()
	plane := c.plane()
	plane.Spec.ETCDSnapshotRestore, plane.Spec.ProvisionGeneration = restore, 7
	c.must(c.Update(c.Context(), plane))
}

// observed makes a generation the last that was asked for.
func (c *unrestoredCluster) observed(generation int) {
	c.Helper()
	plane := c.plane()
	plane.Status.ETCDSnapshotRestore = &rkev1.ETCDSnapshotRestore{Name: "snap", Generation: generation}
	c.must(c.Status().Update(c.Context(), plane))
}

// create creates an operation of the cluster that has a status already.
func (c *unrestoredCluster) create(name string, op operationv1.Operation, labels map[string]string) {
	c.Helper()
	of(op, "c", op.CommonStatus().Phase)
	op.SetName(name)
	op.SetLabels(labels)
	op.CommonSpec().TTL = -1
	had := op.DeepCopyObject().(operationv1.Operation)
	c.must(c.Create(c.Context(), op))
	had.SetResourceVersion(op.GetResourceVersion())
	had.SetUID(op.GetUID())
	had.SetCreationTimestamp(op.GetCreationTimestamp())
	c.must(c.Status().Update(c.Context(), had))
}

// waits creates the snapshot, whose file is not listed at the moment: a restore waits for it.
func (c *unrestoredCluster) waits() {
	c.Helper()
	snapshot := localSnapshot()
	snapshot.Namespace, snapshot.Labels = controlPlaneKey.Namespace, map[string]string{rkev1.MachineNameLabel: "m0000"}
	snapshot.Status.MissingSince = &metav1.Time{Time: time.Now()}
	c.must(c.Create(c.Context(), snapshot))
}

func (c *unrestoredCluster) restore(name string) *operationv1.ETCDSnapshotRestore {
	c.Helper()
	op := &operationv1.ETCDSnapshotRestore{}
	if !c.read(name, op) {
		c.Fatalf("there is no ETCDSnapshotRestore %s", name)
	}
	return op
}

func (c *unrestoredCluster) delivers(s *scope) bool {
	return slices.ContainsFunc(s.machines, func(m *machine) bool { return m.decision.Deliver || m.decision.Drain != "" })
}

// held checks that no server is restarted, and why.
func (c *unrestoredCluster) held(s *scope, reason, text string) {
	c.Helper()
	if want := "snap/2"; c.plane().Annotations[rkev1.UnrestoredConfigurationAnnotation] != want {
		c.Errorf("the RKEControlPlane has the annotations %v", c.plane().Annotations)
	}
	for _, m := range s.machines {
		if d := m.decision; d.Deliver || d.Drain != "" || d.Reason != reason || !strings.Contains(d.Message, text) {
			c.Errorf("%s: %+v, want %s: %s", m.machine.Name, d, reason, text)
		}
	}
}

// free checks that servers are restarted.
func (c *unrestoredCluster) free(s *scope) {
	c.Helper()
	if value := c.plane().Annotations[rkev1.UnrestoredConfigurationAnnotation]; value != "" || !c.delivers(s) {
		c.Errorf("nothing is delivered: %q, %+v", value, s.outcome)
	}
}

func asked(generation int, restoreRKEConfig string) *rkev1.ETCDSnapshotRestore {
	return &rkev1.ETCDSnapshotRestore{Name: "snap", Generation: generation, RestoreRKEConfig: restoreRKEConfig}
}

const notRestored = "The Cluster has the configuration of ETCDSnapshot snap, and ETCDSnapshotRestore c-restore-2 ended or was deleted"

// failed is a cluster whose restore has failed, since there is no such snapshot.
func failed(t *testing.T) *unrestoredCluster {
	t.Helper()
	c := newUnrestoredCluster(t)
	c.ask(asked(2, "all"))
	c.held(c.reconcile(), rollout.ReasonRestoreFailed, notRestored)
	return c
}

// TestUnrestored: the configuration of a snapshot restarts nothing when its restore ends without having changed anything, from the
// reconcile on in which it ends.
func TestUnrestored(t *testing.T) {
	c := failed(t)
	if op := c.restore("c-restore-2"); op.Status.Phase != operationv1.PhaseFailed || !op.Status.Unchanged {
		t.Fatalf("got %+v", op.Status)
	}
	c.held(c.reconcile(), rollout.ReasonRestoreFailed, notRestored)
	if c.writes != 1 {
		t.Errorf("%d writes of the RKEControlPlane", c.writes)
	}
	// To remove the request is how a user ends the hold.
	c.ask(nil)
	c.free(c.reconcile())
}

// TestUnrestoredOutlivesOperation: what becomes of the operation does not matter.
func TestUnrestoredOutlivesOperation(t *testing.T) {
	remove := func(c *unrestoredCluster) { c.must(c.Delete(c.Context(), c.restore("c-restore-2"))) }
	waiting := func(t *testing.T) *unrestoredCluster {
		c := newUnrestoredCluster(t)
		c.waits()
		c.ask(asked(2, "kubernetesVersion"))
		c.held(c.reconcile(), rollout.ReasonWaitingForOperation, "ETCDSnapshotRestore c-restore-2")
		return c
	}
	for name, tc := range map[string]struct {
		from func(*testing.T) *unrestoredCluster
		then func(*unrestoredCluster)
	}{
		"deleted when it has failed": {failed, remove},
		"deleted while it waits":     {waiting, remove},
		"moved without status": {failed, func(c *unrestoredCluster) {
			op, plane := c.restore("c-restore-2"), c.plane()
			op.Status, plane.Status = operationv1.ETCDSnapshotRestoreStatus{}, rkev1.RKEControlPlaneStatus{}
			c.must(c.Status().Update(c.Context(), op))
			c.must(c.Status().Update(c.Context(), plane))
		}},
		"another one fails that restores data only": {failed, func(c *unrestoredCluster) {
			c.ask(asked(3, "none"))
			c.reconcile()
			if op := c.restore("c-restore-3"); !op.Status.Unchanged {
				c.Fatalf("got %+v", op.Status)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			c := tc.from(t)
			tc.then(c)
			for range 2 {
				c.held(c.reconcile(), rollout.ReasonRestoreFailed, notRestored)
			}
		})
	}
}

// TestUnrestoredPaused: a restore that was paused before it began holds up no changes but those of its own configuration.
func TestUnrestoredPaused(t *testing.T) {
	c := newUnrestoredCluster(t)
	c.waits()
	c.ask(asked(2, "all"))
	c.reconcile()
	op := c.restore("c-restore-2")
	op.Spec.Paused = true
	c.must(c.Update(c.Context(), op))
	c.held(c.reconcile(), rollout.ReasonWaitingForOperation, "Waiting for spec.paused of ETCDSnapshotRestore c-restore-2 to become false")
	op = c.restore("c-restore-2")
	op.Spec.Cancel = true
	c.must(c.Update(c.Context(), op))
	c.held(c.reconcile(), rollout.ReasonRestoreFailed, notRestored)
}

// TestUnrestoredAgain: a generation that was used before the last one is used again. In the reconcile that deletes the operation of then,
// nothing is delivered.
func TestUnrestoredAgain(t *testing.T) {
	c := newUnrestoredCluster(t)
	then := &operationv1.ETCDSnapshotRestore{}
	then.Status.Phase, then.Status.TerminatedAt = operationv1.PhaseSucceeded, &metav1.Time{Time: time.Unix(0, 0)}
	then.Annotations = map[string]string{operationv1.EndedAnnotation: string(operationv1.PhaseSucceeded)}
	c.create("c-restore-2", then, map[string]string{restoreLabel: "2"})
	c.observed(3)
	c.ask(asked(2, "all"))
	s := c.reconcile()
	if c.delivers(s) || s.wait.Reason != rollout.ReasonWaitingForOperation || c.read("c-restore-2", &operationv1.ETCDSnapshotRestore{}) {
		t.Errorf("got %+v, %+v", s.wait, s.outcome)
	}
	if value := c.plane().Annotations[rkev1.UnrestoredConfigurationAnnotation]; value != "snap/2" {
		t.Errorf("the annotation is %q", value)
	}
	c.held(c.reconcile(), rollout.ReasonRestoreFailed, notRestored)
}

// TestUnrestoredIsStoredFirst: without the annotation the restore is not created, and nothing is delivered.
func TestUnrestoredIsStoredFirst(t *testing.T) {
	c := newUnrestoredCluster(t)
	c.ask(asked(2, "all"))
	c.refused = errors.New("refused")
	if s, err := c.try(); !errors.Is(err, c.refused) || s.outcome != nil || s.unrestored() != "" || c.created > 0 {
		t.Errorf("got %v, %+v", err, s.outcome)
	}
	c.refused = nil
	c.held(c.reconcile(), rollout.ReasonRestoreFailed, notRestored)
}

// TestRestored: once a restore has stopped all machines, changes are delivered when it has ended, also those that come later.
func TestRestored(t *testing.T) {
	c := failed(t)
	c.must(c.Delete(c.Context(), c.restore("c-restore-2")))
	op := &operationv1.ETCDSnapshotRestore{}
	op.Status.Phase, op.Status.Step, op.Status.MachineName = operationv1.PhaseInProgress, operationv1.StepRestartCluster, "m0000"
	c.create("by-user", op, nil)
	s := c.reconcile()
	if c.delivers(s) || s.unrestored() != "" || c.plane().Annotations[rkev1.UnrestoredConfigurationAnnotation] != "" {
		t.Errorf("while it is in progress: %q, %+v", s.unrestored(), s.outcome)
	}
	op = c.restore("by-user")
	op.Status.Phase, op.Status.Step = operationv1.PhaseSucceeded, ""
	c.must(c.Status().Update(c.Context(), op))
	c.free(c.reconcile())
}

// TestUnrestoredBefore: a hub that does not know the annotation has carried out the restore. That it has changed nothing is in its status.
func TestUnrestoredBefore(t *testing.T) {
	c := newUnrestoredCluster(t)
	op := &operationv1.ETCDSnapshotRestore{}
	op.Status.Phase, op.Status.Unchanged = operationv1.PhaseFailed, true
	c.create("c-restore-2", op, map[string]string{restoreLabel: "2"})
	c.observed(2)
	c.ask(asked(2, "all"))
	c.held(c.reconcile(), rollout.ReasonRestoreFailed, notRestored)

	// Where it has succeeded, and was deleted since, nothing is held. That it was done is written once.
	c = newUnrestoredCluster(t)
	c.observed(2)
	c.ask(asked(2, "all"))
	c.free(c.reconcile())
	c.reconcile()
	if got := c.plane().Annotations[restoreLabel]; c.writes != 1 || got != "2" {
		t.Errorf("%d writes of the RKEControlPlane, and generation %q", c.writes, got)
	}
}

// TestTokensWhileUnrestored: a TokenRotation restarts no server with the configuration of a snapshot that was not restored. The hold is
// what is said first.
func TestTokensWhileUnrestored(t *testing.T) {
	c := failed(t)
	c.tokens = &corev1.Secret{Data: map[string][]byte{serverTokenKey: []byte("server"), agentTokenKey: []byte("agent"),
		newServerTokenKey: []byte("new"), newAgentTokenKey: []byte("new")}}
	c.create("waits", &operationv1.TokenRotation{}, nil)
	c.held(c.reconcile(), rollout.ReasonRestoreFailed, notRestored)
	op := &operationv1.TokenRotation{}
	c.read("waits", op)
	if reason := conditions.GetReason(op, operationv1.SucceededCondition); op.Status.Phase != operationv1.PhasePending ||
		reason != operation.ReasonSnapshotNotRestored {
		t.Errorf("got %+v", op.Status)
	}
	c.must(c.Delete(c.Context(), op))

	op = &operationv1.TokenRotation{}
	op.Status.Phase, op.Status.Step = operationv1.PhaseInProgress, operationv1.StepRestartServers
	for _, name := range []string{"m0000", "m0001", "m0002"} {
		op.Status.Machines = append(op.Status.Machines, operationv1.MachineStatus{Name: name, Phase: operationv1.PhaseInProgress})
	}
	c.create("restarts", op, nil)
	c.tokens = &corev1.Secret{Data: map[string][]byte{serverTokenKey: []byte("server"), agentTokenKey: []byte("agent"),
		rotatedByKey: []byte("restarts")}}
	c.held(c.reconcile(), rollout.ReasonRestoreFailed, notRestored)
	c.read("restarts", op)
	if reason := conditions.GetReason(op, operationv1.SucceededCondition); op.Status.Phase != operationv1.PhaseFailed ||
		reason != operation.ReasonSnapshotNotRestored {
		t.Errorf("got %+v", op.Status)
	}
}

// TestUnsignedWhileUnrestored: the plan of a machine that this hub has not signed is not what the task of an operation is added to. Neither
// is the rendered one while its configuration is held back.
func TestUnsignedWhileUnrestored(t *testing.T) {
	c := failed(t)
	_, key, err := ed25519.GenerateKey(nil)
	c.must(err)
	c.r.Signer = signing.New(key, time.Now)
	op := &operationv1.ETCDSnapshotSave{}
	op.Status.Phase, op.Status.Step = operationv1.PhaseInProgress, operationv1.StepSave
	op.Status.Machines = []operationv1.MachineStatus{{Name: "m0000", Phase: operationv1.PhaseInProgress}}
	c.create("save", op, nil)
	c.held(c.reconcile(), rollout.ReasonWaitingForOperation, "ETCDSnapshotSave save")
}
