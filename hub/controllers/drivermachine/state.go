package drivermachine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/nodedriver"
	"github.com/drover-dev/drover/hub/util/cause"
	"github.com/drover-dev/drover/hub/util/objects"
)

// The keys of a machine state Secret.
const (
	stateKey = nodedriver.StateKey
	// progressKey says how far the hub has come, as JSON.
	progressKey = "progress"
	logKey      = nodedriver.LogKey
)

// The phases of a machine.
const (
	phaseCreating = "Creating"
	phaseCreated  = "Created"
	phaseRemoved  = "Removed"
)

// progress is how far a machine has come. It is kept in the Secret, which is moved and restored with the machine.
type progress struct {
	Phase string `json:"phase"`
	// Attempt counts the creations, Interrupted those of them that have ended with their hub; RemovalAttempt the removals in a row that have
	// failed.
	Attempt        int `json:"attempt,omitempty"`
	Interrupted    int `json:"interrupted,omitempty"`
	RemovalAttempt int `json:"removalAttempt,omitempty"`
	// Error is why the last attempt has failed; empty while it runs. Final errors are not retried.
	Error string `json:"error,omitempty"`
	Final bool   `json:"final,omitempty"`
	// LastError is why the attempt before the one that runs has failed.
	LastError string `json:"lastError,omitempty"`
	// NotBefore is when the next attempt may begin.
	NotBefore time.Time            `json:"notBefore,omitzero"`
	Addresses []nodedriver.Address `json:"addresses,omitempty"`
}

// counted is the number of creations that count: a hub that stops is no fault of the machine.
func (p progress) counted() int { return p.Attempt - p.Interrupted }

// stored is a machine state Secret that was read.
type stored struct {
	secret   *corev1.Secret
	progress progress
	state    *nodedriver.State
}

// errRefused is of a machine state Secret that is not written, since it is another's or not readable.
var errRefused = errors.New("the state of the machine cannot be written")

// readState reads the state of a machine. It is empty where there is none; a Cause tells of a Secret that is another's, or not readable.
// One without a controller is that of the machine of its name: Rancher sets none.
func (m *machines) readState(ctx context.Context, machine client.Object) (*stored, *cause.Cause, error) {
	s := &stored{secret: &corev1.Secret{}}
	key := client.ObjectKey{Namespace: machine.GetNamespace(), Name: rkev1.MachineStateSecretName(machine.GetName())}
	found, err := objects.Get(ctx, m.Client, key, s.secret)
	if err != nil {
		return nil, nil, err
	}
	if !found {
		s.secret = nil
		return s, nil, nil
	}
	owner := metav1.GetControllerOf(s.secret)
	if s.secret.Type != rkev1.MachineStateSecretType || owner != nil && owner.UID != machine.GetUID() {
		return &stored{}, cause.New("StateSecretNotOwned", "Secret %s must be of type %s and have no other controller than this machine "+
			"(UID %s); if it is the state of this machine, remove its owner reference: without it the node driver cannot remove the machine",
			key.Name, rkev1.MachineStateSecretType, machine.GetUID()), nil
	}
	if raw := s.secret.Data[progressKey]; len(raw) > 0 {
		if err := json.Unmarshal(raw, &s.progress); err != nil {
			return s, cause.New("StateUnreadable", "Secret %s: key %s is not readable: %v", key.Name, progressKey, err), nil
		}
	}
	if raw := s.secret.Data[stateKey]; len(raw) > 0 {
		if s.state, err = nodedriver.Decode(nodedriver.InstanceName(machine.GetName()), raw); err != nil {
			return s, cause.New("StateUnreadable", "Secret %s: key %s is not readable: %v", key.Name, stateKey, err), nil
		}
	}
	return s, nil, nil
}

// writeState reads the Secret again, changes it and writes it, if anything has changed. It creates it where there is none.
func (m *machines) writeState(ctx context.Context, machine client.Object, log string, change func(*stored) error) error {
	s, refused, err := m.readState(ctx, machine)
	if err != nil {
		return err
	}
	if refused != nil {
		return fmt.Errorf("%w: %s", errRefused, refused.Message)
	}
	before := s.secret.DeepCopy()
	if s.secret == nil {
		s.secret = m.newStateSecret(machine)
	}
	if err := change(s); err != nil {
		return err
	}
	raw, err := json.Marshal(s.progress)
	if err != nil {
		return fmt.Errorf("encoding the progress of the machine: %w", err)
	}
	data := map[string][]byte{progressKey: raw, logKey: s.secret.Data[logKey]}
	if log != "" {
		data[logKey] = []byte(log)
	}
	if s.state != nil {
		if data[stateKey], err = s.state.Encode(); err != nil {
			return err
		}
	}
	same := before != nil && len(before.Data) == len(data)
	for key, value := range data {
		same = same && bytes.Equal(before.Data[key], value)
	}
	if same {
		return nil
	}
	s.secret.Data = data
	if before == nil {
		err = m.Client.Create(ctx, s.secret, fieldOwner)
	} else {
		if metav1.GetControllerOf(s.secret) == nil {
			s.secret.OwnerReferences = append(s.secret.OwnerReferences, *metav1.NewControllerRef(machine, m.kind))
		}
		if s.secret.DeletionTimestamp.IsZero() {
			controllerutil.AddFinalizer(s.secret, Finalizer)
		}
		err = m.Client.Update(ctx, s.secret, fieldOwner)
	}
	if err != nil {
		return fmt.Errorf("writing the state of the machine: %w", err)
	}
	return nil
}

// newStateSecret is a Secret that stays until the machine is removed, even if its namespace is deleted.
func (m *machines) newStateSecret(machine client.Object) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: machine.GetNamespace(), Name: rkev1.MachineStateSecretName(machine.GetName()), Finalizers: []string{Finalizer},
			Labels: map[string]string{
				rkev1.ClusterNameLabel:     machine.GetLabels()[clusterv1.ClusterNameLabel],
				clusterv1.ClusterNameLabel: machine.GetLabels()[clusterv1.ClusterNameLabel],
			},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(machine, m.kind)},
		},
		Type: rkev1.MachineStateSecretType,
	}
}

// releaseState lets the Secret of a machine that is removed be deleted. It is there until the machine is gone, which it says was removed.
func (m *machines) releaseState(ctx context.Context, s *stored) error {
	if s.secret == nil {
		return nil
	}
	before := s.secret.DeepCopy()
	if controllerutil.RemoveFinalizer(s.secret, Finalizer) {
		if err := m.Client.Patch(ctx, s.secret, client.MergeFrom(before), fieldOwner); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("removing the finalizer of Secret %s: %w", s.secret.Name, err)
		}
	}
	return nil
}

// deleteState deletes the Secret of a machine that is gone.
func (m *machines) deleteState(ctx context.Context, s *stored) error {
	if s.secret == nil {
		return nil
	}
	return objects.Delete(ctx, m.Client, s.secret)
}
