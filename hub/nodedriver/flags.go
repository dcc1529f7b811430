// Package nodedriver runs node drivers for the hub: it reads their create flags, and creates and removes machines with them. How a driver
// is run is in sandbox, how it is spoken to in plugin, where its program comes from in programs, and its kinds in schema.
package nodedriver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"github.com/drover-dev/drover/hub/nodedriver/plugin"
	"github.com/drover-dev/drover/hub/nodedriver/programs"
	"github.com/drover-dev/drover/hub/nodedriver/sandbox"
	"github.com/drover-dev/drover/hub/util/inflight"
)

// Runner runs drivers in processes of its own.
type Runner struct {
	// Dir holds the sandboxes. It must be on a file system from which programs can be run. Empty if the container of this process is the
	// sandbox.
	Dir string
	// Grace is how long a driver may go on with a creation that was canceled.
	Grace time.Duration
	// slots bounds how many drivers make machines at a time, by namespace.
	slots *inflight.Fair
}

// maxRunning is the number of drivers that make machines at a time: some of them take a hundred megabytes.
const maxRunning = 10

// NewRunner returns a Runner with its sandboxes in dir/run. It removes those that a hub has left there that was killed.
func NewRunner(dir string) (*Runner, error) {
	r := &Runner{Dir: filepath.Join(dir, "run"), Grace: localGrace, slots: inflight.NewFair(maxRunning)}
	if dir == "" {
		return r, nil // there is no program either
	}
	if err := os.RemoveAll(r.Dir); err != nil {
		return nil, fmt.Errorf("removing old sandboxes of node drivers: %w", err)
	}
	return r, nil
}

// NewContained returns a Runner in a container that was made for one operation of a driver.
func NewContained() *Runner { return &Runner{Grace: containedGrace, slots: inflight.NewFair(1)} }

// sandbox makes the sandbox of a program.
func (r *Runner) sandbox(program *programs.Program) (*sandbox.Sandbox, error) {
	if r.Dir == "" {
		return sandbox.InContainer(program.Path)
	}
	return sandbox.New(r.Dir, program.Path)
}

// start starts a driver. The error of a program for another architecture, or of one that needs libraries, is a *ProgramError.
func start(ctx context.Context, box *sandbox.Sandbox, program *programs.Program, opts plugin.Options) (*plugin.Driver, error) {
	driver, err := plugin.Start(ctx, box, opts)
	switch {
	case errors.Is(err, syscall.ENOEXEC):
		return nil, &ProgramError{fmt.Errorf("the driver is not built for %s, the architecture of the machine that runs it: %w",
			runtime.GOARCH, err)}
	case errors.Is(err, syscall.ENOENT) && programs.IsDynamic(program.Path):
		return nil, &ProgramError{fmt.Errorf("the driver needs shared libraries, and there are none where it runs; use a static one: %w", err)}
	}
	return driver, err
}

// Flags returns the create flags of a driver.
func (r *Runner) Flags(ctx context.Context, driver string, program *programs.Program) (_ []plugin.Flag, err error) {
	box, err := r.sandbox(program)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, box.Close()) }()
	running, err := start(ctx, box, program, plugin.Options{Name: driver})
	if err != nil {
		return nil, err
	}
	defer running.Close()
	return running.CreateFlags(ctx)
}
