package run

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// lostUnits is a service manager whose connection is lost before it has answered: the shim is ready by then, or its start is queued.
type lostUnits struct {
	*fakeUnits
	queued bool
}

func (d *lostUnits) Start(ctx context.Context, unit string, argv []string) error {
	d.argv = argv
	if !d.queued {
		if err := d.fakeUnits.Start(ctx, unit, argv); err != nil {
			return err
		}
	}
	return errors.New("connection closed")
}

// TestStartWithoutAnAnswer has a program run in its unit though the start has failed: its result is waited for.
func TestStartWithoutAnAnswer(t *testing.T) {
	for name, script := range map[string]string{"it runs": "sleep 0.5; echo words; exit 3", "it has ended": "echo words; exit 3"} {
		t.Run(name, func(t *testing.T) {
			_, units, command := inUnit(t, script)
			got, err := Exec{units: &lostUnits{fakeUnits: units}}.Run(t.Context(), command)
			if err != nil || got.ExitCode != 3 || string(got.Stdout) != "words\n" || units.started != 1 {
				t.Errorf("got %+v, %v, started %d times", got, err, units.started)
			}
		})
	}
}

// TestQueuedStart has a unit that starts when its start was given up: it does not run the program, which may be running elsewhere by then.
func TestQueuedStart(t *testing.T) {
	mark := filepath.Join(t.TempDir(), "mark")
	_, units, command := inUnit(t, "echo ran >"+mark)
	if _, err := (Exec{units: &lostUnits{units, true}}).Run(t.Context(), command); err == nil ||
		!strings.Contains(err.Error(), "connection closed") {
		t.Errorf("got %v", err)
	}
	if units.removed != 1 {
		t.Errorf("the unit was removed %d times", units.removed)
	}
	shim := exec.Command(units.argv[0], units.argv[1:]...)
	if output, err := shim.CombinedOutput(); err == nil {
		t.Errorf("the unit has succeeded: %s", output)
	}
	if _, err := os.Stat(mark); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the program has run: %v", err)
	}
}

// TestNoexec: hardened machines mount /var with noexec.
func TestNoexec(t *testing.T) {
	dir := smallDisk(t)
	must(t, unix.Mount("tmpfs", dir, "tmpfs", unix.MS_REMOUNT|unix.MS_NOEXEC, ""))
	must(t, os.WriteFile(filepath.Join(dir, "run.sh"), []byte("#!/bin/sh\n"), 0o755))
	for name, unit := range map[string]string{"in a unit": "u", "below": ""} {
		t.Run(name, func(t *testing.T) {
			m, _, command := inUnit(t, "")
			command.Path, command.Args, command.Dir, command.Unit = "./run.sh", nil, dir, unit
			if _, err := m.Run(t.Context(), command); err == nil ||
				!strings.HasSuffix(err.Error(), "permission denied: the file system is mounted with noexec") {
				t.Errorf("got %v", err)
			}
		})
	}
}
