package drivermachine

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/drover-dev/drover/hub/nodedriver"
)

// The fifth failure is final. Each attempt comes after the pause that the one before it has told, and after the removal of its machine.
func TestAttempts(t *testing.T) {
	drivers := &fakeDrivers{create: func(context.Context) error { return errors.New("quota exceeded") }}
	h := newHub(t, drivers)
	now := time.Now()
	h.now = func() time.Time { return now }
	for attempt := 1; attempt <= maxAttempts; attempt++ {
		if c, _ := h.reconcile(); c.Reason != "Creating" {
			t.Fatalf("attempt %d: %+v", attempt, c)
		}
		<-h.events
		c, pause := h.reconcile()
		if attempt == maxAttempts {
			if c.Reason != "CreateFailed" || !strings.Contains(c.Message, "quota exceeded") || pause != 0 {
				t.Errorf("at the end: %+v, again after %s", c, pause)
			}
			break
		}
		if c.Reason != "CreateError" || pause != backoff(attempt) {
			t.Errorf("attempt %d: %+v, again after %s", attempt, c, pause)
		}
		now = now.Add(pause - time.Second)
		if c, _ := h.reconcile(); c.Reason != "CreateError" {
			t.Errorf("before its time: %+v", c)
		}
		now = now.Add(time.Second)
	}
	now = now.Add(24 * time.Hour)
	if c, _ := h.reconcile(); c.Reason != "CreateFailed" || drivers.made != maxAttempts {
		t.Errorf("made %d: %+v", drivers.made, c)
	}
}

// A machine is created as soon as the program of its driver can be had, however long that takes.
func TestProgramCannotBeHad(t *testing.T) {
	drivers := &fakeDrivers{create: func(context.Context) error {
		return &nodedriver.ProgramError{Err: errors.New("the server answers 503")}
	}}
	h := newHub(t, drivers)
	now := time.Now()
	h.now = func() time.Time { return now }
	for range maxAttempts + 1 {
		h.reconcile()
		<-h.events
		c, pause := h.reconcile()
		if c.Reason != "CreateError" || !strings.Contains(c.Message, "failed (the next attempt at") || pause != programPause {
			t.Fatalf("%+v, again after %s", c, pause)
		}
		now = now.Add(pause)
	}
	drivers.create = func(context.Context) error { return nil }
	h.reconcile()
	<-h.events
	if c, _ := h.reconcile(); c.Reason != "Created" {
		t.Errorf("%+v", c)
	}
}

// An attempt that has failed while the clock was ahead does not hold up the next one until the clock has caught up.
func TestPauseAfterTheClockWasAhead(t *testing.T) {
	now := time.Now()
	for name, tt := range map[string]struct{ notBefore, want time.Duration }{
		"over":                {-time.Second, 0},
		"not over":            {time.Minute, time.Minute},
		"the longest":         {maxBackoff, maxBackoff},
		"the clock was ahead": {14 * time.Hour, 0},
	} {
		if got := (progress{NotBefore: now.Add(tt.notBefore)}).pause(now); got != tt.want {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
	}
	drivers := &fakeDrivers{create: func(context.Context) error { return errors.New("quota exceeded") }}
	h := newHub(t, drivers)
	h.now = func() time.Time { return now.Add(14 * time.Hour) }
	h.reconcile()
	<-h.events
	h.now = func() time.Time { return now }
	if c, pause := h.reconcile(); c.Reason != "Creating" {
		t.Errorf("%+v, again after %s", c, pause)
	}
	<-h.events
}

// A hub that ends while its own process creates a machine removes it at the next start, and begins again: there is one machine at any time.
func TestRestartOfLocalForm(t *testing.T) {
	drivers := &fakeDrivers{create: func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	}}
	h := newHub(t, drivers)
	h.reconcile()
	h.restart()
	drivers.create = func(context.Context) error { return nil }
	now := time.Now().Add(time.Hour)
	h.now = func() time.Time { return now }
	h.reconcile()
	<-h.events
	state, _, err := h.readState(t.Context(), h.infra)
	if err != nil || state.progress.Phase != phaseCreated || state.progress.Attempt != 2 || !drivers.exists || drivers.made != 2 {
		t.Errorf("%v, %+v, made %d", err, state.progress, drivers.made)
	}
}

// Creations that end with their hub, as often as it restarts, are no failed attempts. What they have left is removed.
func TestInterruptedAttempts(t *testing.T) {
	drivers := &fakeDrivers{create: func(ctx context.Context) error {
		<-ctx.Done()
		return errors.New("the driver has ended")
	}}
	h := newHub(t, drivers)
	for range maxAttempts {
		if c, _ := h.reconcile(); c.Reason != "Creating" || !strings.Contains(c.Message, "(attempt 1 of 5)") {
			t.Fatalf("%+v", c)
		}
		h.restart()
	}
	drivers.create = func(context.Context) error { return nil }
	h.reconcile()
	<-h.events
	state, _, err := h.readState(t.Context(), h.infra)
	if err != nil || state.progress.Phase != phaseCreated || !drivers.exists || drivers.made != maxAttempts+1 {
		t.Errorf("%v, %+v, made %d", err, state.progress, drivers.made)
	}
}

// A removal that ends with its hub has not failed, and the next hub removes the machine without a pause.
func TestInterruptedRemoval(t *testing.T) {
	drivers := &fakeDrivers{create: func(context.Context) error { return nil }, remove: func(ctx context.Context) error {
		<-ctx.Done()
		return errors.New("the driver has ended")
	}}
	h := newHub(t, drivers)
	h.reconcile()
	<-h.events
	h.delete()
	h.reconcileTo("Deleted")
	h.restart()
	if state, _, err := h.readState(t.Context(), h.infra); err != nil || state.progress.RemovalAttempt != 0 || state.progress.Error != "" {
		t.Fatalf("%v, %+v", err, state.progress)
	}
	drivers.remove = nil
	h.reconcileTo("Deleted")
	<-h.events
	if h.reconcileTo("Deleted"); drivers.exists || drivers.removed != 1 {
		t.Errorf("the machine exists: %v, after %d removals", drivers.exists, drivers.removed)
	}
}

// A removal before the next attempt that goes on in a Job when its hub ends is no attempt, as often as the hub restarts.
func TestInterruptedRemovalBeforeAttempt(t *testing.T) {
	drivers := &fakeDrivers{create: func(context.Context) error { return errors.New("quota exceeded") }}
	h := newHub(t, drivers)
	h.reconcile()
	<-h.events
	now := time.Now().Add(time.Hour)
	h.now = func() time.Time { return now }
	drivers.remove = func(ctx context.Context) error {
		<-ctx.Done()
		return nodedriver.ErrInterrupted
	}
	for range maxAttempts {
		if c, _ := h.reconcile(); c.Reason != "Creating" || !strings.Contains(c.Message, "(attempt 2 of 5)") {
			t.Fatalf("%+v", c)
		}
		h.restart()
		drivers.outlived = nodedriver.OutlivedRemains
	}
	drivers.remove = nil
	h.reconcile()
	<-h.events
	state, _, err := h.readState(t.Context(), h.infra)
	if err != nil || state.progress.counted() != 2 || state.progress.Error == "" || drivers.made != 2 {
		t.Errorf("%v, %+v, made %d", err, state.progress, drivers.made)
	}
}

// A hub that ends while a Job creates a machine writes no outcome, and the next one waits for the Job: no attempt is counted again.
func TestRestartOfJobForm(t *testing.T) {
	drivers := &fakeDrivers{create: func(ctx context.Context) error {
		<-ctx.Done()
		return nodedriver.ErrInterrupted
	}}
	h := newHub(t, drivers)
	h.reconcile()
	h.restart()
	state, _, err := h.readState(t.Context(), h.infra)
	if err != nil || state.progress.Error != "" || state.progress.Phase != phaseCreating {
		t.Errorf("after the end: %v, %+v", err, state.progress)
	}
	drivers.create, drivers.outlived = func(context.Context) error { return nil }, nodedriver.OutlivedCreation
	h.reconcile()
	<-h.events
	if state, _, err = h.readState(t.Context(), h.infra); err != nil || state.progress.Phase != phaseCreated || state.progress.Attempt != 1 ||
		drivers.made != 1 {
		t.Errorf("%v, %+v, made %d", err, state.progress, drivers.made)
	}
}

// A creation that is canceled while it waits for others is no attempt.
func TestAttemptNotStarted(t *testing.T) {
	drivers := &fakeDrivers{create: func(context.Context) error { return nil }, notStarted: true}
	h := newHub(t, drivers)
	for range maxAttempts + 1 {
		h.reconcile()
		<-h.events
	}
	state, _, err := h.readState(t.Context(), h.infra)
	if err != nil || state.progress.Attempt != 0 || state.progress.Error != "" {
		t.Errorf("%v, %+v", err, state.progress)
	}
	drivers.notStarted = false
	h.reconcile()
	<-h.events
	if state, _, err = h.readState(t.Context(), h.infra); err != nil || state.progress.Phase != phaseCreated || state.progress.Attempt != 1 {
		t.Errorf("%v, %+v", err, state.progress)
	}
}

// A machine that was not created in the backup that the hub was restored from may have been since, and run: it is not made once more, which
// would remove it before. Its deletion removes what the backup knows of it.
func TestRestoredHub(t *testing.T) {
	for name, tt := range map[string]struct {
		progress string
		removed  int
	}{
		"not begun":       {"", 0},
		"being created":   {`{"phase":"Creating","attempt":1}`, 1},
		"failed that far": {`{"phase":"Creating","attempt":1,"error":"quota exceeded"}`, 1},
	} {
		drivers := &fakeDrivers{exists: true}
		h := newHub(t, drivers)
		h.restored = time.Now()
		if tt.progress != "" {
			secret := stateSecret(t)
			secret.Data[progressKey] = []byte(tt.progress)
			h.create(secret)
		}
		if c, _ := h.reconcile(); c.Reason != "HubRestored" || drivers.made > 0 || drivers.removed > 0 || !drivers.exists {
			t.Errorf("%s: made %d, removed %d: %+v", name, drivers.made, drivers.removed, c)
		}
		h.delete()
		h.reconcileTo("Deleted")
		if tt.removed > 0 {
			<-h.events
			h.reconcileTo("Deleted")
		}
		if drivers.removed != tt.removed {
			t.Errorf("%s: deleted: removed %d", name, drivers.removed)
		}
	}
}
