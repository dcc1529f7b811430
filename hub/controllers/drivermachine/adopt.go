package drivermachine

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	ctrl "sigs.k8s.io/controller-runtime"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/util/cause"
)

// hasJoined reports whether the machine is a Node, or was one: it exists, whatever its state says.
func hasJoined(s *scope) bool {
	id, _, err := unstructured.NestedString(s.object.Object, "spec", "providerID")
	return err == nil && id != "" || s.machine != nil && s.machine.Status.NodeRef.IsDefined()
}

// adopt takes a machine that has joined its cluster as created if its state, of which nothing is known but the files of the driver, is as
// Rancher leaves it. The state of any other one is lost: it must not be created again, which would remove it before.
func (m *machines) adopt(ctx context.Context, s *scope) (ctrl.Result, error) {
	if s.stored.progress.Phase != "" || s.stored.state.Config() == nil {
		s.created = cause.New(reasonStateLost, "The machine has joined its cluster, but Secret %s does not say that it was created; restore "+
			"the Secret, or delete the Machine to replace it", rkev1.MachineStateSecretName(s.object.GetName()))
		return ctrl.Result{RequeueAfter: retryInterval}, nil
	}
	var adopted *stored
	err := m.writeState(ctx, s.object, "", func(stored *stored) error {
		stored.progress = progress{Phase: phaseCreated, Addresses: stored.state.Addresses()}
		adopted = stored
		return nil
	})
	if err != nil {
		return ctrl.Result{}, err
	}
	s.stored = adopted
	return ctrl.Result{}, nil
}

// reasonStateLost is of machines that have joined their cluster, and whose state is missing.
const reasonStateLost = "StateLost"
