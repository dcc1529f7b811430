package drivermachine

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/util/cause"
	"github.com/drover-dev/drover/hub/util/message"
)

// Conditions beside Ready and Paused.
const (
	createdCondition   = "Created"
	nodeFoundCondition = rkev1.NodeFoundCondition
	deletedCondition   = "Deleted"
)

// machineStatus is the status of an infrastructure machine.
type machineStatus struct {
	Conditions     []metav1.Condition         `json:"conditions,omitempty"`
	Addresses      []clusterv1.MachineAddress `json:"addresses,omitempty"`
	Initialization initialization             `json:"initialization,omitzero"`
}

type initialization struct {
	Provisioned bool `json:"provisioned,omitempty"`
}

// write writes what was found, if anything has changed: first the object, then its status.
func (m *machines) write(ctx context.Context, before *unstructured.Unstructured, s *scope) error {
	raw, _, err := unstructured.NestedMap(s.object.Object, "status")
	if err != nil {
		return fmt.Errorf("reading the status: %w", err)
	}
	var status machineStatus
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(raw, &status); err != nil {
		return fmt.Errorf("reading the status: %w", err)
	}
	if err := setStatus(s, &status); err != nil {
		return err
	}
	encoded, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&status)
	if err != nil {
		return fmt.Errorf("encoding the status: %w", err)
	}
	after := s.object.DeepCopy()
	err = patch(before, s.object, func(p client.Patch) error { return m.Client.Patch(ctx, s.object, p, fieldOwner) })
	if err != nil {
		return err
	}
	if !before.GetDeletionTimestamp().IsZero() && len(after.GetFinalizers()) == 0 {
		return nil // it is gone
	}
	was := after.DeepCopy()
	was.Object["status"] = before.Object["status"]
	if was.Object["status"] == nil {
		delete(was.Object, "status")
	}
	after.Object["status"] = encoded
	return patch(was, after, func(p client.Patch) error { return m.Client.Status().Patch(ctx, after, p, fieldOwner) })
}

// patch has the difference written, if there is one.
func patch(before, after *unstructured.Unstructured, write func(client.Patch) error) error {
	difference := client.MergeFrom(before)
	raw, err := difference.Data(after)
	if err != nil || string(raw) == "{}" {
		return err
	}
	if err := write(difference); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("writing %s %s: %w", after.GetKind(), after.GetName(), err)
	}
	return nil
}

// setStatus writes what the phases found. A provider ID that was found once stays, and so does that the machine is provisioned.
func setStatus(s *scope, status *machineStatus) error {
	set := func(c metav1.Condition) {
		if shown := meta.FindStatusCondition(status.Conditions, c.Type); shown != nil && shown.Reason == reasonError && c.Reason == reasonError {
			c.Message = shown.Message // another text, such as with another port, would be written and bring the next reconcile at once
		}
		c.ObservedGeneration, c.Message = s.object.GetGeneration(), message.Bound(c.Message, message.MaxCondition)
		meta.SetStatusCondition(&status.Conditions, c)
	}
	paused := metav1.Condition{Type: clusterv1.PausedCondition, Status: metav1.ConditionFalse, Reason: clusterv1.NotPausedReason}
	if s.paused {
		paused.Status, paused.Reason = metav1.ConditionTrue, clusterv1.PausedReason
	}
	set(paused)
	if s.paused || s.incomplete || s.stored == nil {
		return nil
	}
	if s.removal != nil {
		set(s.removal.Condition(deletedCondition, "Deleted"))
		set(s.removal.Condition(rkev1.ReadyCondition, ""))
		return nil
	}
	if !s.object.GetDeletionTimestamp().IsZero() {
		return nil
	}
	set(s.created.Condition(createdCondition, "Created"))
	if s.created == nil {
		setNode(s, status, set)
	}
	return setReady(s, status, set)
}

func setNode(s *scope, status *machineStatus, set func(metav1.Condition)) {
	found := s.found.Condition(nodeFoundCondition, "NodeFound")
	if s.nodeUnknown {
		found.Status = metav1.ConditionUnknown
	}
	if s.node == nil {
		if len(status.Addresses) == 0 {
			status.Addresses = driverAddresses(s)
		}
		set(found)
		return
	}
	found.Message = "Node " + s.node.Name
	set(found)
	status.Addresses = nil
	for _, a := range s.node.Status.Addresses {
		status.Addresses = append(status.Addresses, clusterv1.MachineAddress{Type: clusterv1.MachineAddressType(a.Type), Address: a.Address})
	}
	for _, a := range driverAddresses(s) {
		if !slices.ContainsFunc(status.Addresses, func(b clusterv1.MachineAddress) bool { return b.Address == a.Address }) {
			status.Addresses = append(status.Addresses, a)
		}
	}
}

// driverAddresses are those that the driver told.
func driverAddresses(s *scope) []clusterv1.MachineAddress {
	var out []clusterv1.MachineAddress
	for _, a := range s.stored.progress.Addresses {
		kind := clusterv1.MachineExternalIP
		if a.Internal {
			kind = clusterv1.MachineInternalIP
		}
		out = append(out, clusterv1.MachineAddress{Type: kind, Address: a.Address})
	}
	return out
}

// setReady sets the provider ID and whether the machine is provisioned.
func setReady(s *scope, status *machineStatus, set func(metav1.Condition)) error {
	if s.node != nil {
		if err := unstructured.SetNestedField(s.object.Object, s.node.Spec.ProviderID, "spec", "providerID"); err != nil {
			return fmt.Errorf("setting spec.providerID: %w", err)
		}
	}
	id, _, err := unstructured.NestedString(s.object.Object, "spec", "providerID")
	if err != nil {
		return fmt.Errorf("reading spec.providerID: %w", err)
	}
	var waiting *cause.Cause
	switch {
	case s.created != nil:
		waiting = s.created
	case id == "":
		waiting = s.found
	}
	status.Initialization.Provisioned = status.Initialization.Provisioned || id != "" && s.created == nil
	set(waiting.Condition(rkev1.ReadyCondition, "NodeFound"))
	return nil
}
