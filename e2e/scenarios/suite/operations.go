package suite

import (
	"context"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
)

// OperationSpec is what the spec of an operation of a Cluster has in any case. The operation stays when it has ended.
func OperationSpec(key client.ObjectKey) operationv1.Spec {
	cluster := operationv1.ClusterReference{APIVersion: provisioningv1.GroupVersion.String(), Kind: "Cluster", Name: key.Name}
	return operationv1.Spec{TTL: -1, ClusterRef: cluster}
}

// WaitOperation waits until an operation has succeeded, and fails the test if it ends otherwise. inStep is called in each step with its
// name; nil for nothing.
func (s *Suite) WaitOperation(t *testing.T, op operationv1.Operation, inStep func(step string)) {
	t.Helper()
	if s.WaitOperationEnd(t, op, inStep) != operationv1.PhaseSucceeded {
		t.Fatalf("%s has ended: %+v", op.GetName(), op.CommonStatus())
	}
}

// WaitOperationEnd waits until an operation has ended, and returns how.
func (s *Suite) WaitOperationEnd(t *testing.T, op operationv1.Operation, inStep func(step string)) operationv1.Phase {
	t.Helper()
	began, step := time.Now(), ""
	Must(t, s.WaitFor(t.Context(), op.GetName()+" has ended", 20*time.Minute, func(ctx context.Context) (bool, string) {
		if err := s.Hub.Get(ctx, client.ObjectKeyFromObject(op), op); err != nil {
			return false, err.Error()
		}
		status := op.CommonStatus()
		if status.Step != step {
			step = status.Step
			t.Logf("%s %s after %s", status.Phase, step, time.Since(began).Round(time.Second))
			if inStep != nil && step != "" {
				inStep(step)
			}
		}
		return status.Phase.Ended(), string(status.Phase) + " " + status.Step
	}))
	return op.CommonStatus().Phase
}
