// Package systemd talks to the service manager: state notifications and the watchdog, transient units, and journald. It is the only package
// that imports go-systemd, and it decides nothing: what runs in a unit is up to package run.
package systemd

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

const (
	// callTimeout bounds one operation on the service manager, the start of a unit included.
	callTimeout = 2 * time.Minute
	// stopTimeout is TimeoutStopSec= of a transient unit: more than the shim of package run needs for SIGTERM, SIGKILL and the result.
	stopTimeout = 30 * time.Second
)

// ErrUnavailable is wrapped by Units.Start if the service manager started nothing, so that the caller may run the program without a unit.
var ErrUnavailable = errors.New("systemd started no unit")

// Running reports whether systemd is the service manager of this machine.
func Running() bool {
	return util.IsRunningSystemd()
}

// Units manages transient services. It connects for each call: instructions are rare, and an idle agent is small.
type Units struct{}

// Start starts <unit>.service with Type=notify and returns once the program has sent READY=1. A unit of that name which exists already is
// killed and replaced. Errors wrap ErrUnavailable if the manager could not be reached or refused the unit; otherwise the program may have
// started. argv holds the absolute path of the program first.
func (u Units) Start(ctx context.Context, unit string, argv []string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	conn, err := connect(ctx)
	if err != nil {
		return errors.Join(ErrUnavailable, err)
	}
	defer conn.Close()
	result := make(chan string, 1)
	name := unit + ".service"
	_, err = conn.StartTransientUnitContext(ctx, name, "fail", properties(unit, argv, true), result)
	if isDBus(err, "org.freedesktop.systemd1.UnitExists") {
		u.Remove(unit)
		_, err = conn.StartTransientUnitContext(ctx, name, "fail", properties(unit, argv, true), result)
	} else if isDBus(err, "org.freedesktop.DBus.Error.PropertyReadOnly") || isDBus(err, "org.freedesktop.DBus.Error.InvalidArgs") {
		_, err = conn.StartTransientUnitContext(ctx, name, "fail", properties(unit, argv, false), result)
	}
	if err != nil {
		if ctx.Err() != nil {
			return err
		}
		return errors.Join(ErrUnavailable, err)
	}
	select {
	case outcome := <-result:
		if outcome != "done" {
			return fmt.Errorf("systemd job result is %q: see journalctl -u %s", outcome, name)
		}
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Remove kills all processes of <unit>.service with SIGKILL and unloads the unit. A unit that does not exist is fine, errors are dropped.
func (Units) Remove(unit string) {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	conn, err := connect(ctx)
	if err != nil {
		return
	}
	defer conn.Close()
	name := unit + ".service"
	if err := conn.KillUnitWithTarget(ctx, name, dbus.All, int32(syscall.SIGKILL)); isDBus(err, "org.freedesktop.systemd1.NoSuchUnit") {
		return
	}
	result := make(chan string, 1)
	if _, err := conn.StopUnitContext(ctx, name, "replace", result); err == nil {
		select {
		case <-result:
		case <-ctx.Done():
		}
	}
	_ = conn.ResetFailedUnitContext(ctx, name)
}

// ShuttingDown reports whether the machine is going down (SystemState "stopping"); false if the manager cannot be asked.
func (Units) ShuttingDown() bool {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	conn, err := connect(ctx)
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

// connect tries the manager's own socket first, which needs no message bus.
func connect(ctx context.Context) (*dbus.Conn, error) {
	conn, err := dbus.NewSystemdConnectionContext(ctx)
	if err != nil {
		conn, err = dbus.NewSystemConnectionContext(ctx)
	}
	return conn, err
}

// properties of a transient unit. It is bound to no other unit, so that nothing stops it with the agent. KillMode=process: only the shim is
// killed with the unit, and the shim kills the rest; a daemon that the program left behind on purpose outlives the unit. Older versions of
// systemd do not know the optional properties.
func properties(unit string, argv []string, optional bool) []dbus.Property {
	property := func(name string, value any) dbus.Property {
		return dbus.Property{Name: name, Value: godbus.MakeVariant(value)}
	}
	list := []dbus.Property{
		dbus.PropDescription("Instruction of a plan (" + strings.TrimPrefix(unit, "system-agent-") + ")"),
		dbus.PropExecStart(argv, false),
		dbus.PropType("notify"),
		property("KillMode", "process"),
	}
	if !optional {
		return list
	}
	return append(list,
		dbus.PropSlice("system.slice"),
		property("CollectMode", "inactive-or-failed"),
		// The kernel kills the process that uses the most memory, and the shim reports that.
		property("OOMPolicy", "continue"),
		property("TimeoutStopUSec", uint64(stopTimeout/time.Microsecond)),
		property("SyslogIdentifier", SyslogIdentifier),
	)
}

func isDBus(err error, name string) bool {
	var failed godbus.Error
	return errors.As(err, &failed) && failed.Name == name
}
