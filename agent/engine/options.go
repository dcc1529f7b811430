package engine

import "context"

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
