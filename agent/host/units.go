package host

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/dbus"
	"github.com/coreos/go-systemd/v22/util"
	godbus "github.com/godbus/dbus/v5"
)

// unitManager starts programs as units of their own.
type unitManager interface {
	// start returns when the shim says that it is ready; errNoUnits tells that nothing was started.
	start(ctx context.Context, unit string, argv []string) error
	// clear kills whatever is left in a unit and forgets the unit.
	clear(unit string)
	// stopping tells whether the machine is going down.
	stopping() bool
}

var errNoUnits = errors.New("the service manager starts no units")

// unitManager is nil where there is none.
func (m Machine) unitManager() unitManager {
	if m.units != nil {
		return m.units
	}
	if !util.IsRunningSystemd() {
		return nil
	}
	return systemd{}
}

// systemd speaks to the service manager on a connection of its own each time: instructions are rare, and an idle agent is small.
type systemd struct{}

const systemdTimeout = 2 * time.Minute

// connect tries the manager's own socket first, which needs no message bus.
func (systemd) connect(ctx context.Context) (*dbus.Conn, error) {
	conn, err := dbus.NewSystemdConnectionContext(ctx)
	if err != nil {
		conn, err = dbus.NewSystemConnectionContext(ctx)
	}
	return conn, err
}

func (s systemd) start(ctx context.Context, unit string, argv []string) error {
	ctx, cancel := context.WithTimeout(ctx, systemdTimeout)
	defer cancel()
	conn, err := s.connect(ctx)
	if err != nil {
		return errors.Join(errNoUnits, err)
	}
	defer conn.Close()
	done := make(chan string, 1)
	name := unit + ".service"
	_, err = conn.StartTransientUnitContext(ctx, name, "fail", properties(unit, argv, true), done)
	if isDBus(err, "org.freedesktop.systemd1.UnitExists") {
		s.clear(unit)
		_, err = conn.StartTransientUnitContext(ctx, name, "fail", properties(unit, argv, true), done)
	} else if isDBus(err, "org.freedesktop.DBus.Error.PropertyReadOnly") || isDBus(err, "org.freedesktop.DBus.Error.InvalidArgs") {
		_, err = conn.StartTransientUnitContext(ctx, name, "fail", properties(unit, argv, false), done)
	}
	if err != nil {
		if ctx.Err() != nil {
			return err
		}
		return errors.Join(errNoUnits, err)
	}
	select {
	case outcome := <-done:
		if outcome != "done" {
			return fmt.Errorf("its start ended as %q; journalctl -u %s says more", outcome, name)
		}
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// properties of a unit. It belongs to no other unit, so that nothing stops it with the agent. Only the shim is killed with it, and the
// shim kills the rest: what a program leaves behind on purpose lives on when the unit has ended, as it always has. Older service
// managers do not know the later ones.
func properties(unit string, argv []string, all bool) []dbus.Property {
	named := func(name string, value any) dbus.Property {
		return dbus.Property{Name: name, Value: godbus.MakeVariant(value)}
	}
	list := []dbus.Property{
		dbus.PropDescription("Instruction of a plan (" + strings.TrimPrefix(unit, "system-agent-") + ")"),
		dbus.PropExecStart(argv, false),
		dbus.PropType("notify"),
		named("KillMode", "process"),
	}
	if !all {
		return list
	}
	return append(list,
		dbus.PropSlice("system.slice"),
		named("CollectMode", "inactive-or-failed"),
		// Out of memory ends what uses the most, and the shim reports that.
		named("OOMPolicy", "continue"),
		named("TimeoutStopUSec", uint64((3*killGrace)/time.Microsecond)),
		named("SyslogIdentifier", "system-agent"),
	)
}

func (s systemd) clear(unit string) {
	ctx, cancel := context.WithTimeout(context.Background(), systemdTimeout)
	defer cancel()
	conn, err := s.connect(ctx)
	if err != nil {
		return
	}
	defer conn.Close()
	name := unit + ".service"
	if err := conn.KillUnitWithTarget(ctx, name, dbus.All, int32(syscall.SIGKILL)); isDBus(err, "org.freedesktop.systemd1.NoSuchUnit") {
		return
	}
	done := make(chan string, 1)
	if _, err := conn.StopUnitContext(ctx, name, "replace", done); err == nil {
		select {
		case <-done:
		case <-ctx.Done():
		}
	}
	_ = conn.ResetFailedUnitContext(ctx, name)
}

func (s systemd) stopping() bool {
	ctx, cancel := context.WithTimeout(context.Background(), systemdTimeout)
	defer cancel()
	conn, err := s.connect(ctx)
	if err != nil {
		return false
	}
	defer conn.Close()
	state, err := conn.SystemStateContext(ctx)
	if err != nil || state == nil {
		return false
	}
	text, _ := state.Value.Value().(string)
	return text == "stopping"
}

func isDBus(err error, name string) bool {
	var failed godbus.Error
	return errors.As(err, &failed) && failed.Name == name
}
