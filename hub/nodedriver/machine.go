package nodedriver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"time"

	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	"github.com/drover-dev/drover/hub/nodedriver/mkisofs"
	"github.com/drover-dev/drover/hub/nodedriver/plugin"
	"github.com/drover-dev/drover/hub/nodedriver/programs"
	"github.com/drover-dev/drover/hub/nodedriver/sandbox"
	"github.com/drover-dev/drover/hub/nodedriver/schema"
)

// Times that a driver has.
const (
	// CreateTimeout is for a machine to be created and bootstrapped, RemoveTimeout to be removed.
	CreateTimeout = 30 * time.Minute
	RemoveTimeout = 15 * time.Minute
	checkTimeout  = 5 * time.Minute
	stateTimeout  = time.Minute
	// stateInterval is the pause between looks at whether a machine runs, stateGrace how long a driver may answer with errors: a cloud may not
	// know at once what it has made, or be busy. libmachine has the same 3 minutes.
	stateInterval = 3 * time.Second
	stateGrace    = 3 * time.Minute
	// saveInterval is the pause between looks at the state during a creation. A hub that is killed in between may leave an instance of which
	// nothing is known.
	saveInterval = time.Second
	// saveTimeout is the time in which the state is saved after a creation, for as long as the Kubernetes API may not answer.
	saveTimeout = 5 * time.Minute
	// localGrace and containedGrace are how long a driver may go on with a creation that was canceled: until the cloud has answered it, nobody
	// knows the instance that it is creating. A Pod is killed after 30 s.
	localGrace     = 3 * time.Minute
	containedGrace = 20 * time.Second
)

// Machine is a machine to be created or removed.
type Machine struct {
	// ID is whose machine it is. Drivers do not see it.
	ID     ID
	Driver string
	// Source is where the program of the driver comes from, Program is the program; Local sets it.
	Source  managementv3.NodeDriverSpec
	Program *programs.Program
	// Name of the machine at its cloud, Hostname in its operating system: DNS labels.
	Name, Hostname string
	// Spec are the fields of the machine that are for the driver.
	Spec map[string]any
	// Credential is the cloud credential, by field.
	Credential map[string]string
	// Files are the fields that take the content of a file.
	Files schema.Files
	// Script is the bootstrap data.
	Script []byte
	// State is what was saved of it; nil if nothing was.
	State *State
	// Queued is called with true when an operation has to wait for those of other machines, and with false when it waits no longer; it may be
	// nil.
	Queued func(bool)
	// Save is called whenever the state changes: before the driver is asked to create anything, from time to time, and at the end.
	Save func(context.Context, *State) error
}

// ID is the infrastructure machine of a machine.
type ID struct {
	Kind            runtimeschema.GroupVersionKind
	Namespace, Name string
	UID             types.UID
	// Machine is the name of the Machine of Cluster API; empty if there is none any more.
	Machine string
}

// session is a running driver for a machine.
type session struct {
	*plugin.Driver
	box    *sandbox.Sandbox
	log    *plugin.Log
	fields []schema.Field
	// grace is that of the Runner.
	grace time.Duration
}

// open starts the driver of a machine with the files of its state. files are the fields that take the content of a file; where the driver
// is given no values of its flags, none are needed.
func (r *Runner) open(ctx context.Context, m *Machine, files schema.Files, log *plugin.Log) (*session, error) {
	box, err := r.sandbox(m.Program)
	if err != nil {
		return nil, err
	}
	s := &session{box: box, log: log, grace: r.Grace}
	if m.State == nil {
		m.State = &State{Name: m.Name, Files: map[string][]byte{}}
	}
	err = errors.Join(addPrograms(box, m.Driver), box.WriteFile(Dir(m.Name)+"/"+keepFile, nil), m.State.write(box), m.writeFiles(box))
	if err != nil {
		return nil, errors.Join(err, s.end())
	}
	s.Driver, err = start(ctx, box, m.Program, plugin.Options{
		Name: m.Driver, Env: append(proxyEnvironment(), environment(m.Driver, m.Credential)...), Log: log,
	})
	if err != nil {
		return nil, errors.Join(err, s.end())
	}
	flags, err := s.CreateFlags(ctx)
	if err == nil {
		s.fields, err = schema.Fields(m.Driver, flags, files)
	}
	if err != nil {
		return nil, errors.Join(err, s.end())
	}
	return s, nil
}

// addPrograms gives a driver the programs that it starts: vmwarevsphere writes the user data of a machine into an image of a CD.
func addPrograms(box *sandbox.Sandbox, driver string) error {
	if driver != "vmwarevsphere" {
		return nil
	}
	hub, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding the program of the hub: %w", err)
	}
	return box.AddProgram(mkisofs.Name, hub)
}

func (s *session) end() error {
	if s.Driver != nil {
		s.Close()
	}
	return s.box.Close()
}

// acquire waits for a slot for a machine. The error is ErrNotStarted.
func (r *Runner) acquire(ctx context.Context, m *Machine) (release func(), err error) {
	release, ok := r.slots.Acquire(ctx, m.ID.Namespace, m.Queued)
	if !ok {
		return nil, ErrNotStarted
	}
	return release, nil
}

// Create creates a machine and runs its bootstrap data, and returns its addresses. log is the end of what the driver has written, without
// secrets, as is the text of the error. Whatever the outcome, the state was saved: Remove removes what there is.
func (r *Runner) Create(ctx context.Context, m *Machine) (addresses []Address, log string, err error) {
	output := plugin.NewLog(m.secrets()...)
	err = func() (err error) {
		s, err := r.open(ctx, m, m.Files, output)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, s.end()) }()
		addresses, err = m.create(ctx, s)
		return m.explain(s.fields, err)
	}()
	return addresses, output.String(), redact(output, err)
}

// redact keeps secrets out of the text of an error. It keeps the types of an InvalidError and of a ProgramError, which have none.
func redact(log *plugin.Log, err error) error {
	var wrong *InvalidError
	var program *ProgramError
	if err == nil || errors.As(err, &wrong) || errors.As(err, &program) {
		return err
	}
	return errors.New(log.Redact(err.Error()))
}

func (m *Machine) create(ctx context.Context, s *session) ([]Address, error) {
	given, err := m.flagValues(s)
	if err != nil {
		return nil, err
	}
	byUserData, _ := userDataFields(s.fields)
	if byUserData != nil {
		data, err := userData(m.Hostname, fromFile(s.fields, given, userDataPath), m.Script)
		if err != nil {
			return nil, err
		}
		if err := s.box.WriteFile(userDataPath, data); err != nil {
			return nil, err
		}
	}
	if err := m.configure(ctx, s, given); err != nil {
		return nil, err
	}
	if err := s.PreCreateCheck(ctx, checkTimeout); err != nil {
		return nil, err
	}
	if err := m.save(ctx, s); err != nil {
		return nil, err
	}
	if err := m.createSaving(ctx, s); err != nil {
		return nil, err
	}
	err = persist(ctx, func() (bool, error) { return s.Running(ctx, stateTimeout) })
	if err != nil {
		return nil, err
	}
	if byUserData == nil {
		var at plugin.SSH
		err := persist(ctx, func() (_ bool, err error) {
			at, err = s.SSH(ctx, stateTimeout)
			return true, err
		})
		if err != nil {
			return nil, err
		}
		if err := m.bootstrap(ctx, s.box, at, s.log); err != nil {
			return nil, err
		}
	}
	if err := m.saveLast(ctx, s); err != nil {
		return nil, err
	}
	return m.State.Addresses(), nil
}

// configure gives a driver that knows of no machine yet the values of its flags.
func (m *Machine) configure(ctx context.Context, s *session, given map[string]any) error {
	base, err := json.Marshal(map[string]any{"MachineName": m.Name, "StorePath": sandbox.Home})
	if err != nil {
		return err
	}
	if err := s.SetConfig(ctx, base); err != nil {
		return err
	}
	return s.SetFlags(ctx, given)
}

// createSaving has the driver create the machine. Meanwhile and at the end it saves the state, by which the machine is found again. A
// driver whose creation is canceled has the grace to learn from its cloud what it has created.
func (m *Machine) createSaving(ctx context.Context, s *session) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("creating the machine: %w", err)
	}
	creating, cancel := delayCancel(ctx, s.grace)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- s.Create(creating, CreateTimeout) }()
	ticker := time.NewTicker(saveInterval)
	defer ticker.Stop()
	for {
		select {
		case err := <-done:
			// The state is saved even if the time of the creation is over.
			saving, cancel := context.WithTimeout(context.WithoutCancel(ctx), saveTimeout)
			defer cancel()
			unsaved := m.saveLast(saving, s)
			var gone *plugin.Error
			if err != nil && errors.As(unsaved, &gone) {
				return err // a driver that has ended cannot be asked any more, and what it knew was saved
			}
			return errors.Join(err, unsaved)
		case <-ticker.C:
			// A driver that is busy may not answer; it is asked again.
			_ = m.save(creating, s)
		}
	}
}

// delayCancel returns a context that ends a delay after its parent.
func delayCancel(parent context.Context, delay time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(parent))
	stop := context.AfterFunc(parent, func() {
		select {
		case <-time.After(delay):
			cancel()
		case <-ctx.Done():
		}
	})
	return ctx, func() {
		stop()
		cancel()
	}
}

// save takes the state from the driver and saves it.
func (m *Machine) save(ctx context.Context, s *session) error {
	config, err := s.Config(ctx)
	if err != nil {
		return fmt.Errorf("reading the configuration of the machine from the driver: %w", err)
	}
	if !json.Valid(config) {
		return errors.New("the driver has sent a configuration that is no JSON")
	}
	next := &State{Name: m.Name, Files: maps.Clone(m.State.Files)}
	if err := errors.Join(next.read(s.box), next.setConfig(m.Driver, config)); err != nil {
		return err
	}
	if err := next.fit(); err != nil {
		return err
	}
	if maps.EqualFunc(next.Files, m.State.Files, bytes.Equal) {
		return nil
	}
	if err := m.Save(ctx, next); err != nil {
		return &saveError{fmt.Errorf("saving the state of the machine: %w", err)}
	}
	m.State = next
	return nil
}

// saveError is that of Save.
type saveError struct{ error }

func (e *saveError) Unwrap() error { return e.error }

// saveLast is save for what will not be saved later: while Save fails, it is called again, until ctx ends. Without the state nobody knows
// which instance the machine is.
func (m *Machine) saveLast(ctx context.Context, s *session) error {
	for {
		err := m.save(ctx, s)
		var unsaved *saveError
		if !errors.As(err, &unsaved) {
			return err
		}
		select {
		case <-time.After(saveInterval):
		case <-ctx.Done():
			return err
		}
	}
}

// persist asks a driver about a machine that it has created until it runs. Answers that are errors give it up only after stateGrace, since
// then it is removed and made once more; a driver that has ended answers nothing any more.
func persist(ctx context.Context, ask func() (running bool, err error)) error {
	var failing time.Time
	for {
		running, err := ask()
		var answer *plugin.Error
		switch {
		case err == nil && running:
			return nil
		case err == nil:
			failing = time.Time{}
		case !errors.As(err, &answer) || !answer.Answered:
			return err
		case failing.IsZero():
			failing = time.Now()
		case time.Since(failing) >= stateGrace:
			return err
		}
		select {
		case <-ctx.Done():
			if err != nil {
				return err
			}
			return errors.New("the machine did not run within the time that it has")
		case <-time.After(stateInterval):
		}
	}
}
