package rkecontrolplane

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	"github.com/drover-dev/drover/hub/testenv/fakeclient"
)

// A restore brings the tokens back that the cluster had when the snapshot was saved, once all machines are stopped for it. Those that it
// replaces are found for a snapshot of their time later.
func TestRestoreTokens(t *testing.T) {
	day := func(n int) time.Time { return time.Date(2026, 11, n, 12, 0, 0, 0, time.UTC) }
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "one-rke-state"}, Data: map[string][]byte{
		"serverToken": []byte("third"), "agentToken": []byte("third agent"),
		"serverToken-20261105T120000Z": []byte("first"), "agentToken-20261105T120000Z": []byte("first agent"),
		"serverToken-20261110T120000Z": []byte("second"), "agentToken-20261110T120000Z": []byte("second agent"),
		"serverToken-yesterday": []byte("none"),
	}}
	c := fake.NewClientBuilder().WithScheme(fakeclient.Scheme(t, corev1.AddToScheme)).WithObjects(secret).Build()
	r, now := &Reconciler{Client: c}, day(20)
	r.Now = func() time.Time { return now }
	restore := func(saved time.Time, step string) string {
		t.Helper()
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(secret), secret); err != nil {
			t.Fatal(err)
		}
		at := metav1.NewTime(saved)
		op := &operationv1.ETCDSnapshotRestore{}
		op.Status.Phase, op.Status.Step = operationv1.PhaseInProgress, step
		op.Status.Snapshot = &operationv1.RestoredSnapshot{CreatedAt: &at}
		s := &scope{operation: op}
		s.setTokens(secret)
		if err := r.restoreTokens(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		return s.tokens.Server + ", " + s.tokens.Agent
	}
	for i, tc := range []struct {
		saved time.Time
		step  string
		want  string
	}{
		{day(7), operationv1.StepPreflight, "third, third agent"},
		{day(7), operationv1.StepShutdown, "third, third agent"}, // it may be canceled with nothing stopped
		{day(12), operationv1.StepRestore, "third, third agent"},
		{day(7), operationv1.StepRestore, "second, second agent"},
		{day(7), operationv1.StepPostRestorePodCleanup, "second, second agent"}, // again, after the hub has ended
		{day(12), operationv1.StepRestore, "third, third agent"},
		{day(1), operationv1.StepRestore, "first, first agent"},
		{day(22), operationv1.StepRestore, "first, first agent"}, // a snapshot of the restored cluster: it has the tokens that it has
	} {
		if got := restore(tc.saved, tc.step); got != tc.want {
			t.Errorf("case %d: got %s, want %s", i, got, tc.want)
		}
		now = now.Add(time.Hour)
	}
}

// Where no machine has to be stopped, the step Restore follows at once: its task waits for the tokens.
func TestTokensReady(t *testing.T) {
	saved := metav1.NewTime(time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC))
	op := &operationv1.ETCDSnapshotRestore{}
	op.Status.Phase, op.Status.Step = operationv1.PhaseInProgress, operationv1.StepRestore
	op.Status.Snapshot = &operationv1.RestoredSnapshot{CreatedAt: &saved}
	s := &scope{operation: op}
	s.setTokens(&corev1.Secret{Data: map[string][]byte{
		"serverToken": []byte("second"), "agentToken": []byte("second agent"),
		"serverToken-20261105T120000Z": []byte("first"), "agentToken-20261105T120000Z": []byte("first agent"),
	}})
	if s.tokensReady() {
		t.Error("the restore is rendered with the tokens of now")
	}
	s.tokenSecret.Data["serverToken"], s.tokenSecret.Data["agentToken"] = []byte("first"), []byte("first agent")
	if !s.tokensReady() {
		t.Error("the restore waits although the cluster has the tokens of then")
	}
}

// TestRestoreEndsPendingTokens: what a TokenRotation that failed has left holds nothing back after a restore, and is kept for snapshots
// that were saved since.
func TestRestoreEndsPendingTokens(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		saved *metav1.Time
		step  string
		want  string // the cluster's token, and the pending one
	}{
		"machines are being stopped": {&metav1.Time{Time: now.AddDate(0, 0, -1)}, operationv1.StepShutdown, "second third"},
		"of the present token":       {&metav1.Time{Time: now.AddDate(0, 0, -1)}, operationv1.StepRestore, "second "},
		"of an earlier token":        {&metav1.Time{Time: now.AddDate(0, 0, -9)}, operationv1.StepRestore, "first "},
		"of an unknown time":         {nil, operationv1.StepRestore, "second "},
	} {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "one-rke-state"}, Data: map[string][]byte{
			"serverToken": []byte("second"), "agentToken": []byte("second agent"),
			"newServerToken": []byte("third"), "newAgentToken": []byte("third agent"),
			"serverToken-20261115T120000Z": []byte("first"), "agentToken-20261115T120000Z": []byte("first agent"),
		}}
		c := fake.NewClientBuilder().WithScheme(fakeclient.Scheme(t, corev1.AddToScheme)).WithObjects(secret).Build()
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(secret), secret); err != nil {
			t.Fatal(err)
		}
		op := &operationv1.ETCDSnapshotRestore{}
		op.Status.Phase, op.Status.Step = operationv1.PhaseInProgress, tc.step
		op.Status.Snapshot = &operationv1.RestoredSnapshot{CreatedAt: tc.saved}
		s := &scope{operation: op}
		s.setTokens(secret)
		r := &Reconciler{Client: c, Now: func() time.Time { return now }}
		if err := r.restoreTokens(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		if got := s.tokens.Server + " " + s.tokens.NewServer; got != tc.want {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
		}
		if tc.step == operationv1.StepRestore && (string(s.tokenSecret.Data["newServerToken-20261120T120000Z"]) != "third" || !s.tokensReady()) {
			t.Errorf("%s: got %v", name, s.tokenSecret.Data)
		}
	}
}
