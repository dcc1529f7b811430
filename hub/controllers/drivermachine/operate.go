package drivermachine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/drover-dev/drover/hub/nodedriver"
	"github.com/drover-dev/drover/hub/util/cause"
	"github.com/drover-dev/drover/hub/util/message"
)

// startCreate removes what an earlier attempt has left, and creates the machine. An attempt that has outlived the process of the hub that
// began it is continued, and not counted again.
func (m *machines) startCreate(object *unstructured.Unstructured, machine *clusterv1.Machine, work *nodedriver.Machine) {
	m.start(object, false, func(ctx context.Context) error {
		outlived, err := m.drivers.Outlived(ctx, work.ID)
		if err != nil {
			return err
		}
		attempt, interrupted := 0, 0
		err = m.writeState(ctx, object, "", func(s *stored) error {
			if outlived != nodedriver.OutlivedCreation {
				s.progress.Attempt++
			}
			attempt, interrupted = s.progress.Attempt, s.progress.Interrupted
			s.progress.LastError = cmp.Or(s.progress.Error, s.progress.LastError)
			s.progress.Phase, s.progress.Error = phaseCreating, ""
			return nil
		})
		if err != nil {
			return err
		}
		work.Save = func(ctx context.Context, state *nodedriver.State) error {
			return m.writeState(ctx, object, "", func(s *stored) error {
				s.state = state
				return superseded(s, attempt)
			})
		}
		var log string
		if outlived == nodedriver.OutlivedRemains || outlived == nodedriver.OutlivedNothing && attempt > 1 {
			log, err = m.removeEarlier(ctx, object, machine, work, attempt)
			if errors.Is(err, nodedriver.ErrInterrupted) {
				err = nodedriver.ErrNotStarted // the removal goes on in a Job, and no creation has begun
			}
		}
		var addresses []nodedriver.Address
		if err == nil {
			addresses, log, err = m.drivers.Create(ctx, work)
		}
		if errors.Is(err, nodedriver.ErrInterrupted) {
			return nil
		}
		var final *nodedriver.InvalidError
		var program *nodedriver.ProgramError
		unwritten := m.writeOutcome(ctx, object, log, func(s *stored) error {
			if late := superseded(s, attempt); late != nil {
				return late
			}
			switch {
			case err == nil:
				s.progress = progress{Phase: phaseCreated, Attempt: attempt, Addresses: addresses}
			case errors.Is(err, nodedriver.ErrNotStarted):
				s.progress.Attempt = attempt - 1
			case ctx.Err() != nil: // the hub stops, or the machine is deleted meanwhile
				s.progress.Interrupted = interrupted + 1
			case errors.As(err, &program): // the attempt has not begun
				s.progress.Attempt, s.progress.Error = attempt-1, message.Bound(err.Error(), message.MaxError)
				s.progress.NotBefore = m.now().Add(programPause)
			default:
				s.progress.Error, s.progress.Final = message.Bound(err.Error(), message.MaxError), errors.As(err, &final)
				s.progress.NotBefore = m.now().Add(backoff(s.progress.counted()))
			}
			return nil
		})
		if unwritten != nil || err != nil {
			return unwritten
		}
		return m.forget(ctx, work.ID)
	})
}

// superseded refuses what an attempt has to write once another hub has begun the next one, or has removed the machine. A leader that was
// frozen goes on for some seconds before it knows that it does not lead any more.
func superseded(s *stored, attempt int) error {
	if s.progress.Attempt > attempt || s.progress.Phase == phaseRemoved {
		return fmt.Errorf("%w: after attempt %d another hub has begun attempt %d, or has removed the machine", errRefused, attempt,
			s.progress.Attempt)
	}
	return nil
}

// forgetWithin is the time to delete what the driver has kept of a creation.
const forgetWithin = 10 * time.Second

// forget drops the result of a creation whose outcome is recorded. Where that fails, it is deleted when the machine is removed.
func (m *machines) forget(ctx context.Context, id nodedriver.ID) error {
	forgetting, cancel := context.WithTimeout(context.WithoutCancel(ctx), forgetWithin)
	defer cancel()
	if err := m.drivers.Forget(forgetting, id); err != nil {
		return fmt.Errorf("deleting the Job that has created the machine: %w", err)
	}
	return nil
}

// removeEarlier removes the machine of an earlier attempt, which may have registered, and then lets that of the next one register: in the
// other order, the earlier one could register again.
func (m *machines) removeEarlier(ctx context.Context, object *unstructured.Unstructured, machine *clusterv1.Machine,
	work *nodedriver.Machine, attempt int) (log string, err error) {
	if log, err = m.drivers.Remove(ctx, work); err != nil {
		return log, fmt.Errorf("removing what an earlier attempt has left: %w", err)
	}
	work.State = nil
	err = m.writeState(ctx, object, log, func(s *stored) error {
		s.state = nil
		return superseded(s, attempt)
	})
	if err != nil {
		return log, err
	}
	return log, m.clearRegistration(ctx, machine)
}

// startRemove removes the machine. An error says that it was removed with the credential of its creation, and why: that may be its cause.
func (m *machines) startRemove(object *unstructured.Unstructured, work *nodedriver.Machine, noCredential *cause.Cause) {
	m.start(object, true, func(ctx context.Context) error {
		log, err := m.drivers.Remove(ctx, work)
		if errors.Is(err, nodedriver.ErrInterrupted) || errors.Is(err, nodedriver.ErrNotStarted) || err != nil && ctx.Err() != nil {
			return nil // the hub stops, and the next one removes the machine
		}
		return m.writeOutcome(ctx, object, log, func(s *stored) error {
			if err == nil {
				s.progress.Phase, s.progress.Error, s.state = phaseRemoved, "", nil
				return nil
			}
			s.progress.RemovalAttempt++
			s.progress.Error = message.Bound(err.Error(), message.MaxError)
			if noCredential != nil {
				s.progress.Error += "; tried with the cloud credential of the creation: " + noCredential.Message
			}
			s.progress.NotBefore = m.now().Add(backoff(s.progress.RemovalAttempt))
			return nil
		})
	})
}

// start runs an operation; its end brings the next reconcile, which tells the user of its error and waits before the next one.
func (m *machines) start(object *unstructured.Unstructured, removal bool, do func(context.Context) error) {
	logger := ctrl.Log.WithName("drivermachine").WithValues(m.kind.Kind, client.ObjectKeyFromObject(object))
	m.operations.start(object.GetUID(), removal, m.now, func(ctx context.Context) error {
		err := do(ctx)
		if err != nil {
			logger.Error(err, "Operation of the node driver failed")
		}
		return err
	}, func() { m.events <- event.GenericEvent{Object: object} })
}

// lastWritesWithin is the time in which the outcome of an operation that was canceled is written: about five writes. A hub that stops does
// not last much longer.
const lastWritesWithin = 2 * time.Second

// writeOutcome is writeState for the outcome of an operation, which nothing else knows: a machine that was created would be created again
// without it. It writes again after conflicts and errors that pass, until ctx ends, and then for a short time more.
func (m *machines) writeOutcome(ctx context.Context, object *unstructured.Unstructured, log string, change func(*stored) error) error {
	pause := wait.Backoff{Duration: 10 * time.Millisecond, Factor: 2, Cap: 30 * time.Second, Steps: math.MaxInt32}
	for ctx.Err() == nil {
		if err := m.writeState(context.WithoutCancel(ctx), object, log, change); !passes(err) {
			return err
		}
		select {
		case <-time.After(pause.Step()):
		case <-ctx.Done():
		}
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWritesWithin)
	defer cancel()
	pause = wait.Backoff{Duration: 50 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: math.MaxInt32}
	for {
		err := m.writeState(last, object, log, change)
		if !passes(err) {
			return err
		}
		select {
		case <-time.After(pause.Step()):
		case <-last.Done():
			return err
		}
	}
}

// passes reports whether err is an error, and a later write may succeed though nobody has changed anything.
func passes(err error) bool {
	return err != nil && !errors.Is(err, errRefused) && !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) &&
		!apierrors.IsRequestEntityTooLargeError(err)
}
