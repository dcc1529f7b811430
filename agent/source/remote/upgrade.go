package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/drover-dev/drover/agent/source"
	"github.com/drover-dev/drover/plans"
)

const (
	// downloadTimeout bounds the download of an agent, which is some 50 MB: it is that of an image. downloadSilence ends one that has stopped.
	downloadTimeout = 2 * time.Hour
	downloadSilence = 3 * time.Minute
	// maxStatusWrites is how often the status of the agent is written because another plan was delivered meanwhile.
	maxStatusWrites = 5
)

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
	ctx, cancel := context.WithTimeout(ctx, downloadTimeout)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		cancel()
		return nil, err
	}
	request.Header.Set("User-Agent", userAgent)
	silence := newSilence(request, downloadSilence)
	request = request.WithContext(silence.ctx)
	client := *c.http
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	response, err := client.Do(request)
	if err != nil {
		err = silence.explain(err)
		silence.end()
		cancel()
		return nil, fmt.Errorf("downloading the agent: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(response.Body, 256))
		response.Body.Close()
		silence.end()
		cancel()
		return nil, fmt.Errorf("downloading %s: HTTP %d: %q", address, response.StatusCode, text)
	}
	return &download{ReadCloser: response.Body, silence: silence, cancel: cancel}, nil
}

// download ends the timeouts of a request with its body.
type download struct {
	io.ReadCloser
	silence *silence
	cancel  context.CancelFunc
}

func (d *download) Read(p []byte) (int, error) {
	n, err := d.ReadCloser.Read(p)
	if n > 0 {
		d.silence.broken()
	}
	return n, d.silence.explain(err)
}

func (d *download) Close() error {
	defer d.cancel()
	defer d.silence.end()
	return d.ReadCloser.Close()
}
