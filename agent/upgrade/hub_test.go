package upgrade

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"io"

	"github.com/drover-dev/drover/plans"
)

// hub is the Source of one process.
type hub struct {
	*world
	binary  string
	changed chan struct{}
}

// forward lets the process hear of what the hub asks for.
func (h *hub) forward(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-h.wake:
			h.changed <- struct{}{}
		}
	}
}

func (h *hub) UpgradeChanged() <-chan struct{} { return h.changed }

func (h *hub) Upgrade() ([]byte, string, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.raw, machineName, !h.unreachable[h.binary]
}

func (h *hub) ReportAgent(_ context.Context, status plans.AgentStatus) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.host.Stopped() || h.unreachable[h.binary] {
		return errors.New("unreachable")
	}
	if h.status == nil || *h.status != status {
		h.status = &status
		h.reports = append(h.reports, status)
	}
	return nil
}

func (h *hub) DownloadAgent(_ context.Context, arch string) (io.ReadCloser, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.fail != nil {
		return nil, h.fail
	}
	return io.NopCloser(bytes.NewReader([]byte(h.offered[arch]))), nil
}

func (h *hub) SigningKey() (ed25519.PublicKey, error) {
	if h.key == nil {
		return nil, nil
	}
	return h.key.Public().(ed25519.PublicKey), nil
}
