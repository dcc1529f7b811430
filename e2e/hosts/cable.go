package hosts

import (
	"context"
	"fmt"
)

// Unplug pulls the host's cable: no packet gets in or out any more, and nobody is told.
func (h *Host) Unplug(ctx context.Context) error { return h.cable(ctx, "down") }

// Plug puts the cable back.
func (h *Host) Plug(ctx context.Context) error { return h.cable(ctx, "up") }

// cable turns the bridge's end, since the host would forget its routes with its own.
func (h *Host) cable(ctx context.Context, state string) error {
	if _, err := run(ctx, "ip", "-n", h.lab.hubNS(), "link", "set", portOf(h.ip), state); err != nil {
		return fmt.Errorf("taking the cable of host %s %s: %w", h.Name, state, err)
	}
	return nil
}
