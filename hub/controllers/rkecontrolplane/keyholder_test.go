package rkecontrolplane

import (
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/testenv/fakeclient"
)

// TestKeyHolder: no health check replaces the machine that alone has a new key, neither while it writes Secrets nor when that has failed.
func TestKeyHolder(t *testing.T) {
	s := scopeWithMachines()
	builder := fake.NewClientBuilder().WithScheme(fakeclient.Scheme(t, clusterv1.AddToScheme))
	for _, m := range s.machines {
		m.machine.Namespace = "fleet"
		builder.WithObjects(m.machine)
	}
	r := &Reconciler{Client: builder.Build()}
	op := &operationv1.EncryptionKeyRotation{}
	op.Status.Leader = "b"
	for _, tc := range []struct {
		name  string
		phase operationv1.Phase
		step  string
		want  string // the values on a and b
	}{
		{"before it begins", operationv1.PhasePending, "", ","},
		{"the leader makes the key", operationv1.PhaseInProgress, operationv1.StepRotateKeys, "," + keyHolderMark},
		{"it fails", operationv1.PhaseFailed, "", "," + keyHolderMark},
		{"another one", operationv1.PhaseInProgress, operationv1.StepRotateKeys, "," + keyHolderMark},
		{"all servers get the key", operationv1.PhaseInProgress, operationv1.StepRestart, ","},
		{"a user has set the annotation", operationv1.PhaseInProgress, operationv1.StepRotateKeys, "mine,mine"},
		{"and keeps it", operationv1.PhaseInProgress, operationv1.StepVerify, "mine,mine"},
	} {
		op.Status.Phase, op.Status.Step, s.operation = tc.phase, tc.step, op
		for _, m := range s.machines {
			if err := r.Client.Get(t.Context(), client.ObjectKeyFromObject(m.machine), m.machine); err != nil {
				t.Fatal(err)
			}
			if tc.name == "a user has set the annotation" {
				m.machine.Annotations = map[string]string{clusterv1.MachineSkipRemediationAnnotation: "mine"}
				if err := r.Client.Update(t.Context(), m.machine); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := r.protectMachines(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, m := range s.machines {
			after := &clusterv1.Machine{}
			if err := r.Client.Get(t.Context(), client.ObjectKeyFromObject(m.machine), after); err != nil {
				t.Fatal(err)
			}
			got = append(got, after.Annotations[clusterv1.MachineSkipRemediationAnnotation])
		}
		if text := strings.Join(got, ","); text != tc.want {
			t.Errorf("%s: got %q, want %q", tc.name, text, tc.want)
		}
	}
}

// TestKeyHolderIsRestored: a restore, by which a rotation is undone that cannot go on, ends the protection of the machine with the key.
func TestKeyHolderIsRestored(t *testing.T) {
	s := scopeWithMachines()
	m := s.machines[0].machine
	m.Namespace, m.Annotations = "fleet", map[string]string{clusterv1.MachineSkipRemediationAnnotation: keyHolderMark}
	s.machines = s.machines[:1]
	r := &Reconciler{Client: fake.NewClientBuilder().WithScheme(fakeclient.Scheme(t, clusterv1.AddToScheme)).WithObjects(m).Build()}
	op := &operationv1.ETCDSnapshotRestore{}
	s.operation = op
	for _, tc := range []struct {
		phase      operationv1.Phase
		step, want string
	}{
		{operationv1.PhaseInProgress, operationv1.StepPreflight, keyHolderMark},
		{operationv1.PhaseInProgress, operationv1.StepShutdown, keyHolderMark}, // it may end with the data of before
		{operationv1.PhaseInProgress, operationv1.StepRestore, rkev1.RestoringAnnotation},
		{operationv1.PhaseSucceeded, "", ""},
	} {
		op.Status.Phase, op.Status.Step = tc.phase, tc.step
		if err := r.Client.Get(t.Context(), client.ObjectKeyFromObject(m), m); err != nil {
			t.Fatal(err)
		}
		if err := r.protectMachines(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		after := &clusterv1.Machine{}
		if err := r.Client.Get(t.Context(), client.ObjectKeyFromObject(m), after); err != nil {
			t.Fatal(err)
		}
		if got := after.Annotations[clusterv1.MachineSkipRemediationAnnotation]; got != tc.want {
			t.Errorf("%s %s: got %q, want %q", tc.phase, tc.step, got, tc.want)
		}
	}
}
