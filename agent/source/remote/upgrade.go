package remote

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"

	"github.com/drover-dev/drover/agent/source"
	"github.com/drover-dev/drover/plans"
)

// maxStatusWrites is how often the status of the agent is written because another plan was delivered meanwhile.
const maxStatusWrites = 5

// UpgradeChanged is signaled when the hub asks for another upgrade of the agent than before, and when it was read first.
func (s *Source) UpgradeChanged() <-chan struct{} { return s.upgrades }

// Upgrade returns agent-upgrade of the plan Secret as it was last read, and the name that its signature is for. ok is false until the hub
// has answered; raw is empty where the hub asks for nothing.
func (s *Source) Upgrade() (raw []byte, machine string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.latest == nil {
		return nil, "", false
	}
	return s.latest.Data[plans.KeyAgentUpgrade], s.latest.Namespace + "/" + s.latest.Name, true
}

// ReportAgent writes the status of the agent. The Secret must have the key agent-upgrade: older hubs refuse reports with a key that they do
// not know.
func (s *Source) ReportAgent(ctx context.Context, status plans.AgentStatus) error {
	for writes := 1; ; writes++ {
		current, err := s.Get(ctx)
		if err != nil {
			return err
		}
		_, err = s.Update(ctx, current.UID, current.Delivery.Checksum(), func(reported *plans.Status) { reported.Agent = &status })
		if !errors.Is(err, source.ErrSuperseded) || writes == maxStatusWrites {
			return err
		}
	}
}

// DownloadAgent opens the agent for an architecture, as the hub hands it out. The caller verifies and closes it. No credentials are sent,
// and no redirect is followed.
func (s *Source) DownloadAgent(ctx context.Context, arch string) (io.ReadCloser, error) {
	c := s.current()
	address, err := url.JoinPath(c.config.Host, "assets", "system-agent-"+arch)
	if err != nil {
		return nil, err
	}
	client := *c.http
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	ctx, cancel := context.WithTimeout(ctx, downloadTimeout)
	d := &download{ctx: ctx, cancel: cancel, client: &client, address: address}
	if err := d.open(); err != nil {
		cancel()
		return nil, err
	}
	return d, nil
}
