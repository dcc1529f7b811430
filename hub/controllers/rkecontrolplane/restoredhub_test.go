package rkecontrolplane

import (
	"bytes"
	"cmp"
	"crypto/ed25519"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"sigs.k8s.io/cluster-api/util/conditions"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/identity/signing"
	"github.com/drover-dev/drover/hub/plan/machinestate"
	"github.com/drover-dev/drover/hub/plan/rollout"
	"github.com/drover-dev/drover/hub/util/operations"
	"github.com/drover-dev/drover/plans"
)

// TestCheckRestored: a hub that was restored from a backup finds out once whether the cluster was upgraded after it.
func TestCheckRestored(t *testing.T) {
	restored := time.Unix(2000, 5)
	node := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "b"}}
	node.Status.NodeInfo.KubeletVersion = "v1.36.3+k3s1"
	nodes := machinestate.NewNodes([]corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, node})
	for name, tc := range map[string]struct {
		change func(*scope)
		reason string
		// text is in the message of HubRestored; empty for the Node that is newer.
		text string
		// checked is set where it is not asked again.
		checked bool
	}{
		"upgraded":     {reason: rollout.ReasonHubRestored},
		"not upgraded": {change: func(s *scope) { s.controlPlane.Spec.KubernetesVersion = "v1.36.1+k3s1" }, checked: true},
		"no connection": {change: func(s *scope) { s.nodes = nil },
			reason: rollout.ReasonWaitingForConnection},
		"created after the restore": {change: func(s *scope) { s.controlPlane.CreationTimestamp = metav1.NewTime(time.Unix(2001, 0)) }},
		"not started in the backup": {change: func(s *scope) { s.controlPlane.Status.Initialization.ControlPlaneInitialized = nil }},
		"checked after an earlier restore": {change: func(s *scope) {
			s.controlPlane.Annotations = map[string]string{rkev1.VersionCheckedAnnotation: "1970-01-01T00:33:20Z"}
		}, reason: rollout.ReasonHubRestored},
		"confirmed by a user": {change: func(s *scope) {
			s.controlPlane.Annotations = map[string]string{rkev1.VersionCheckedAnnotation: "1970-01-01T00:33:21Z"}
		}, checked: true},
		"a restore of a snapshot": {change: func(s *scope) { s.operation = restoring(time.Unix(3000, 0)) }, checked: true},
		"the configuration of a snapshot": {change: askUnrestored, reason: rollout.ReasonHubRestored,
			text: "the configuration of ETCDSnapshot snap, whose data is not restored"},
		"the configuration of a snapshot, confirmed by a user": {change: func(s *scope) {
			askUnrestored(s)
			s.controlPlane.Annotations[rkev1.VersionCheckedAnnotation] = "1970-01-01T00:33:21Z"
		}, checked: true},
		"one in the backup": {change: func(s *scope) { s.operation = restoring(time.Unix(1000, 0)) },
			reason: rollout.ReasonHubRestored},
	} {
		s := scopeWithMachines()
		s.controlPlane.CreationTimestamp, s.controlPlane.Spec.KubernetesVersion = metav1.NewTime(time.Unix(1000, 0)), "v1.35.6+k3s1"
		s.controlPlane.Status.Initialization.ControlPlaneInitialized = ptr.To(true)
		s.nodes = nodes
		if tc.change != nil {
			tc.change(s)
		}
		s.checkRestored(restored)
		if s.outdated.Reason != tc.reason || s.versionChecked(restored) != tc.checked {
			t.Errorf("%s: waits for %+v, checked: %t", name, s.outdated, s.versionChecked(restored))
		}
		text := cmp.Or(tc.text, "Node b runs v1.36.3+k3s1")
		if tc.reason == rollout.ReasonHubRestored && !strings.Contains(s.outdated.Message, text) {
			t.Errorf("%s: %s", name, s.outdated.Message)
		}
	}
}

// askUnrestored is a restore with the configuration of a snapshot that has not begun.
func askUnrestored(s *scope) {
	s.controlPlane.Spec.ETCDSnapshotRestore = asked(2, "all")
	s.controlPlane.Annotations = map[string]string{rkev1.UnrestoredConfigurationAnnotation: "snap/2"}
}

// restoring is a restore that has stopped all machines.
func restoring(created time.Time) *operationv1.ETCDSnapshotRestore {
	op := &operationv1.ETCDSnapshotRestore{}
	op.CreationTimestamp = metav1.NewTime(created)
	op.Status.Phase, op.Status.Step = operationv1.PhaseInProgress, operationv1.StepRestore
	return op
}

// TestRestoredHubDelivers: as long as it is not known what version a cluster has, it gets no change and no task.
func TestRestoredHubDelivers(t *testing.T) {
	r, _, next := bigCluster(t, 4)
	r.Signer.SetRestored(time.Now())
	save := of(&operationv1.ETCDSnapshotSave{}, "c", "")
	save.CreationTimestamp = metav1.NewTime(time.Now().Add(time.Hour))
	s := next()
	s.controlPlane.Status.Initialization.ControlPlaneInitialized = ptr.To(true)
	s.controlPlane.Spec.MachineGlobalConfig = rkev1.GenericMap{Data: map[string]any{"debug": true}}
	s.operation, s.observedOperation = save, operations.Copy(save)
	if err := r.reconcileInMemory(s); err != nil {
		t.Fatal(err)
	}
	if i := slices.IndexFunc(s.machines, func(m *machine) bool { return m.decision.Deliver }); i >= 0 {
		t.Errorf("%s gets a plan", s.machines[i].machine.Name)
	}
	if s.outcome.Wait.Reason != rollout.ReasonWaitingForConnection || !strings.Contains(s.outcome.Wait.Message, "restored") {
		t.Errorf("the cluster waits for %+v", s.outcome.Wait)
	}
	if c := conditions.Get(s.operation, operationv1.SucceededCondition); c == nil || c.Reason != rollout.ReasonWaitingForConnection {
		t.Errorf("the operation says %+v", c)
	}
	s.operation = restoring(time.Now().Add(time.Hour))
	if s.holdsOperation(r.Signer.Restored()) {
		t.Error("a restore of a snapshot waits for the cluster's API")
	}
}

// TestRestoredHubWithoutStatus: a backup without the status of its objects, as Velero makes them, keeps no cluster from being checked.
func TestRestoredHubWithoutStatus(t *testing.T) {
	r, _, next := bigCluster(t, 4)
	r.Signer.SetRestored(time.Now())
	s := next()
	s.controlPlane.Spec.MachineGlobalConfig = rkev1.GenericMap{Data: map[string]any{"debug": true}}
	if err := r.reconcileInMemory(s); err != nil {
		t.Fatal(err)
	}
	if s.outcome.Wait.Reason != rollout.ReasonWaitingForConnection || !strings.Contains(s.outcome.Wait.Message, "restored") {
		t.Errorf("the cluster waits for %+v", s.outcome.Wait)
	}
	if i := slices.IndexFunc(s.machines, func(m *machine) bool { return m.decision.Deliver }); i >= 0 {
		t.Errorf("%s gets a plan", s.machines[i].machine.Name)
	}
	if !isInitialized(s.controlPlane) {
		t.Error("the next reconcile does not read the Nodes")
	}
}

// TestRestoredHubUnrestored: while the restore of a snapshot with its configuration is awaited, machines get nothing but that, and plans
// that wait in the backup are not signed again.
func TestRestoredHubUnrestored(t *testing.T) {
	c := newUnrestoredCluster(t)
	c.waits()
	c.r.Signer.SetRestored(time.Unix(0, 1)) // before the first operation is created
	c.ask(asked(2, "kubernetesVersion"))
	s := c.reconcile()
	c.held(s, rollout.ReasonHubRestored, "the configuration of ETCDSnapshot snap")
	if s.outdated.Reason != rollout.ReasonHubRestored {
		t.Errorf("plans of the backup are signed again: %+v", s.outdated)
	}
	op := c.restore("c-restore-2")
	reason := conditions.GetReason(op, operationv1.SucceededCondition)
	if op.Status.Phase.Ended() || reason == rollout.ReasonHubRestored {
		t.Errorf("the restore waits, too: %+v", op.Status)
	}
}

// TestSignOutdated: a plan that waits in the backup that the hub was restored from is not signed again while it may be of before an
// upgrade.
func TestSignOutdated(t *testing.T) {
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	data := map[string][]byte{}
	plans.Deliver(data, []byte("{}"), 0, 0)
	if err := signing.New(key, func() time.Time { return time.UnixMilli(1000) }).Sign(data, nil, "fleet/m1"); err != nil {
		t.Fatal(err)
	}
	r := &Reconciler{Signer: signing.New(key, func() time.Time { return time.UnixMilli(3000) })}
	r.Signer.SetRestored(time.UnixMilli(2000))
	m := &machine{secret: &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "m1"}, Data: data}, encoded: []byte("{}")}
	for _, outdated := range []bool{true, false} {
		wanted := m.secret.DeepCopy()
		m.outdated = outdated
		if err := r.sign(m, wanted); err != nil {
			t.Fatal(err)
		}
		if same := bytes.Equal(wanted.Data[plans.KeyPlanSignature], data[plans.KeyPlanSignature]); same != outdated {
			t.Errorf("outdated: %t, and the signature is the same: %t", outdated, same)
		}
	}
}
