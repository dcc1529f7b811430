package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"syscall"
	"time"

	"github.com/drover-dev/drover/agent/engine"
)

const (
	// answerTimeout is how long a client waits; an agent answers from memory, only its history is read from disk.
	answerTimeout = 10 * time.Second
	// maxAnswer bounds what a client reads.
	maxAnswer = 64 << 20
)

// Client asks a running agent.
type Client struct {
	socket string
	http   *http.Client
}

// NewClient makes a Client for a socket. It connects with the first question.
func NewClient(socket string) *Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}
	return &Client{socket: socket, http: &http.Client{Timeout: answerTimeout, Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}}
}

// Status tells what the agent does.
func (c *Client) Status(ctx context.Context) (Status, error) {
	var status Status
	err := c.ask(ctx, http.MethodGet, "/v1/status", &status)
	return status, err
}

// Plan gives the plan of a source as it was delivered last.
func (c *Client) Plan(ctx context.Context, source string) ([]byte, error) {
	return c.do(ctx, http.MethodGet, sourcePath(source, "plan"))
}

// History lists the attempts of a source, the oldest first.
func (c *Client) History(ctx context.Context, source string) ([]engine.Attempt, error) {
	var attempts []engine.Attempt
	err := c.ask(ctx, http.MethodGet, sourcePath(source, "history"), &attempts)
	return attempts, err
}

// Retry lets the agent try again.
func (c *Client) Retry(ctx context.Context, source string) error {
	return c.ask(ctx, http.MethodPost, sourcePath(source, "retry"), &struct{}{})
}

func sourcePath(source, what string) string {
	return "/v1/sources/" + url.PathEscape(source) + "/" + what
}

func (c *Client) ask(ctx context.Context, method, path string, into any) error {
	raw, err := c.do(ctx, method, path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return fmt.Errorf("decoding the agent's answer: %w", err)
	}
	return nil
}

func (c *Client) do(ctx context.Context, method, path string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, method, "http://agent"+path, nil)
	if err != nil {
		return nil, err
	}
	response, err := c.http.Do(request)
	switch {
	case errors.Is(err, os.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return nil, fmt.Errorf("%w on %s", ErrNotRunning, c.socket)
	case errors.Is(err, os.ErrPermission):
		return nil, fmt.Errorf("asking the agent on %s: must be run as root", c.socket)
	case err != nil:
		return nil, fmt.Errorf("asking the agent on %s: %w", c.socket, err)
	}
	defer response.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	if err != nil {
		return nil, fmt.Errorf("reading the agent's answer: %w", err)
	}
	if len(raw) > maxAnswer {
		return nil, fmt.Errorf("the agent's answer is larger than %d bytes", maxAnswer)
	}
	if response.StatusCode != http.StatusOK {
		var failed failure
		if json.Unmarshal(raw, &failed) != nil || failed.Error == "" {
			failed.Error = response.Status
		}
		return nil, errors.New(failed.Error)
	}
	return raw, nil
}
