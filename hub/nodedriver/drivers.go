package nodedriver

import (
	"context"
	"errors"
	"fmt"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	"github.com/drover-dev/drover/hub/nodedriver/plugin"
	"github.com/drover-dev/drover/hub/nodedriver/programs"
)

var (
	// ErrInterrupted is the error of an operation that goes on after its context has ended, in a Job: its outcome is not known yet.
	ErrInterrupted = errors.New("the operation goes on, and its outcome is not known yet")
	// ErrNotStarted is the error of an operation whose context has ended while it waited for others: it has changed nothing.
	ErrNotStarted = errors.New("the operation was canceled before it began")
)

// ProgramError is the error of an operation for which the program of the driver cannot be had, or not be executed where the operation runs.
// It has begun nothing.
type ProgramError struct{ Err error }

func (e *ProgramError) Error() string { return e.Err.Error() }

// Unwrap returns why.
func (e *ProgramError) Unwrap() error { return e.Err }

// Outlived is what an earlier process of the hub has left of the operations of a machine.
type Outlived string

// What may be left.
const (
	OutlivedNothing Outlived = ""
	// OutlivedCreation is a creation, which Create continues, or one whose result was not recorded.
	OutlivedCreation Outlived = "Creation"
	// OutlivedRemains is a removal, or what an operation has written, such as a state that was not saved. Remove continues it, and cleans up.
	OutlivedRemains Outlived = "Remains"
)

// Drivers runs node drivers: Local in processes of the hub, the package jobs in Jobs.
type Drivers interface {
	// Identify returns what changes when the program of a driver does. The error is a *programs.FaultError if a retry does not help.
	Identify(ctx context.Context, driver string, source *managementv3.NodeDriverSpec) (string, error)
	// Flags returns the create flags of a driver, and the SHA-256 of its program in hex.
	Flags(ctx context.Context, driver string, source *managementv3.NodeDriverSpec) ([]plugin.Flag, string, error)
	// Create removes what the state of a machine has, creates the machine, and runs its bootstrap data. log is the end of what the driver has
	// written, without secrets, as is the text of the error. Whatever the outcome, the state was saved, unless the error is ErrInterrupted or
	// ErrNotStarted. After a creation that has succeeded, Forget is to be called once that is recorded. Until then Outlived may say that
	// there is a creation, of which Create returns the same result again.
	Create(ctx context.Context, m *Machine) (addresses []Address, log string, err error)
	// Remove removes a machine by its state. A machine without a state, or that its cloud does not know, is removed. It ends a creation that
	// has outlived the process of the hub that began it, and removes what that has created. The errors are those of Create.
	Remove(ctx context.Context, m *Machine) (log string, err error)
	// Outlived returns what an earlier process of the hub has left of the operations of a machine.
	Outlived(ctx context.Context, id ID) (Outlived, error)
	// Forget ends all operations of a machine that is given up, and drops the result of a creation that is recorded.
	Forget(ctx context.Context, id ID) error
}

// Local runs drivers in processes of the hub, which end with it.
type Local struct {
	Programs *programs.Store
	Runner   *Runner
}

// Identify gets the program and returns its SHA-256 in hex.
func (l *Local) Identify(ctx context.Context, driver string, source *managementv3.NodeDriverSpec) (string, error) {
	program, err := l.Programs.Get(ctx, driver, source)
	if err != nil {
		return "", err
	}
	return program.Checksum, nil
}

// Flags runs the driver and returns its create flags and the SHA-256 of its program.
func (l *Local) Flags(ctx context.Context, driver string, source *managementv3.NodeDriverSpec) ([]plugin.Flag, string, error) {
	program, err := l.Programs.Get(ctx, driver, source)
	if err != nil {
		return nil, "", err
	}
	flags, err := l.Runner.Flags(ctx, driver, program)
	return flags, program.Checksum, err
}

// Create removes what there is of a machine, and creates it, within CreateTimeout, in which it waits for no other machine.
func (l *Local) Create(ctx context.Context, m *Machine) (addresses []Address, log string, err error) {
	release, err := l.Runner.acquire(ctx, m)
	if err != nil {
		return nil, "", err
	}
	defer release()
	ctx, cancel := context.WithTimeout(ctx, CreateTimeout)
	defer cancel()
	if m.Program, err = l.Programs.Get(ctx, m.Driver, &m.Source); err != nil {
		return nil, "", &ProgramError{err}
	}
	if log, err = l.Runner.Remove(ctx, m); err != nil {
		return nil, log, fmt.Errorf("removing what an earlier attempt has left: %w", err)
	}
	m.State = nil
	return l.Runner.Create(ctx, m)
}

// Remove removes a machine within RemoveTimeout, in which it waits for no other machine.
func (l *Local) Remove(ctx context.Context, m *Machine) (log string, err error) {
	if m.State.Config() == nil {
		return "", nil
	}
	release, err := l.Runner.acquire(ctx, m)
	if err != nil {
		return "", err
	}
	defer release()
	ctx, cancel := context.WithTimeout(ctx, RemoveTimeout)
	defer cancel()
	if m.Program, err = l.Programs.Get(ctx, m.Driver, &m.Source); err != nil {
		return "", &ProgramError{err}
	}
	return l.Runner.Remove(ctx, m)
}

// Outlived is nothing: processes end with the hub.
func (l *Local) Outlived(context.Context, ID) (Outlived, error) { return OutlivedNothing, nil }

// Forget has nothing to do.
func (l *Local) Forget(context.Context, ID) error { return nil }
