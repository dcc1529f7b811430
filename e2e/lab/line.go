package lab

import (
	"context"
	"fmt"
	"net"

	"github.com/drover-dev/drover/e2e/relay"
)

// OpenLine puts a relay before the hub, so that the line between it and everybody else can be made bad. It must be opened before the hub
// starts, whose server URL leads to it, and lives as long as this process.
func (l *Lab) OpenLine(ctx context.Context) error {
	if err := l.Up(ctx); err != nil {
		return err
	}
	listener, err := l.Listen(linePort)
	if err != nil {
		return fmt.Errorf("opening the line to the hub: %w", err)
	}
	hub := fmt.Sprintf("%s:%d", l.HubIP(), hubPort)
	l.line = relay.New(listener, func(ctx context.Context) (net.Conn, error) { return l.Dial(ctx, "tcp", hub) }, 1)
	return nil
}

// Line is the relay of OpenLine.
func (l *Lab) Line() *relay.Relay { return l.line }
