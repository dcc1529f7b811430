package drivermachine

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/drover-dev/drover/hub/nodedriver"
	"github.com/drover-dev/drover/hub/util/message"
)

// startCreate removes what an earlier attempt has left, and creates the machine. An attempt that has outlived the process of the hub that
// began it is continued, and not counted again.
func (m *machines) startCreate(object *unstructured.Unstructured, work *nodedriver.Machine) {
	m.start(object, false, func(ctx context.Context) error {
		outlived, err := m.drivers.Outlived(ctx, work.ID)
		if err != nil {
			return err
		}
		attempt := 0
		err = m.writeState(ctx, object, "", func(s *stored) error {
			if !outlived {
				s.progress.Attempt++
			}
			attempt = s.progress.Attempt
			s.progress.Phase, s.progress.Error = phaseCreating, ""
			return nil
		})
		if err != nil {
			return err
		}
		addresses, log, err := m.drivers.Create(ctx, work)
		if errors.Is(err, nodedriver.ErrInterrupted) {
			return nil
		}
		var final *nodedriver.InvalidError
		return m.writeState(context.WithoutCancel(ctx), object, log, func(s *stored) error {
			if err == nil {
				s.progress = progress{Phase: phaseCreated, Attempt: attempt, Addresses: addresses}
				return nil
			}
			s.progress.Error, s.progress.Final = message.Bound(err.Error(), maxError), errors.As(err, &final)
			s.progress.NotBefore = m.now().Add(backoff(attempt))
			return nil
		})
	})
}

// maxError is the length of an error that is kept, in bytes.
const maxError = 1024

// startRemove removes the machine.
func (m *machines) startRemove(object *unstructured.Unstructured, work *nodedriver.Machine) {
	m.start(object, true, func(ctx context.Context) error {
		log, err := m.drivers.Remove(ctx, work)
		if errors.Is(err, nodedriver.ErrInterrupted) {
			return nil
		}
		return m.writeState(context.WithoutCancel(ctx), object, log, func(s *stored) error {
			if err == nil {
				s.progress.Phase, s.progress.Error, s.state = phaseRemoved, "", nil
				return nil
			}
			s.progress.RemovalAttempt++
			s.progress.Error = message.Bound(err.Error(), maxError)
			s.progress.NotBefore = m.now().Add(backoff(s.progress.RemovalAttempt))
			return nil
		})
	})
}

// start runs an operation; its end brings the next reconcile.
func (m *machines) start(object *unstructured.Unstructured, removal bool, do func(context.Context) error) {
	logger := ctrl.Log.WithName("drivermachine").WithValues(m.kind.Kind, client.ObjectKeyFromObject(object))
	m.operations.start(object.GetUID(), removal, func(ctx context.Context) {
		if err := do(ctx); err != nil {
			logger.Error(err, "Writing the state of the machine failed")
		}
	}, func() { m.events <- event.GenericEvent{Object: object} })
}
