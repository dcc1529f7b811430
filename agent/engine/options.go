package engine

import (
	"context"
	"log/slog"
	"time"

	"github.com/drover-dev/drover/agent/host"
)

// Options of an Engine. Source, Host, Images, Log and the two directories must be set.
type Options struct {
	// Name of the source, for people: "hub" where empty.
	Name   string
	Source Source
	Host   host.Host
	Images Images
	Log    *slog.Logger
	// Environment is what instructions inherit, as NAME=value.
	Environment []string

	WorkDirectory         string
	StateDirectory        string
	PreserveWorkDirectory bool
	// AppliedPlanDirectory and InterlockDirectory may be empty.
	AppliedPlanDirectory string
	InterlockDirectory   string
	// InstructionTimeout and PeriodicTimeout end what runs longer; 0 means never.
	InstructionTimeout time.Duration
	PeriodicTimeout    time.Duration
	// Gate is shared by engines of one machine; nil where there is only one.
	Gate *Gate
	// Verify tells why nothing of a plan may be executed; nil where all may. Nothing is written for a plan that it refuses. What
	// it must remember of a plan that it accepts is on the disk when it returns.
	Verify func(Snapshot) error
}

// Gate lets one plan at a time be applied on a machine. Engines that share a Gate wait for each other; the nil Gate is always open.
type Gate struct {
	held chan struct{}
}

// NewGate makes a Gate that is open.
func NewGate() *Gate {
	return &Gate{held: make(chan struct{}, 1)}
}

// enter waits until nobody else is inside.
func (g *Gate) enter(ctx context.Context) error {
	if g == nil {
		return ctx.Err()
	}
	select {
	case g.held <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// try enters only if nobody else is inside.
func (g *Gate) try() bool {
	if g == nil {
		return true
	}
	select {
	case g.held <- struct{}{}:
		return true
	default:
		return false
	}
}

func (g *Gate) leave() {
	if g != nil {
		<-g.held
	}
}
