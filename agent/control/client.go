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

	"github.com/drover-dev/drover/agent/engine/journal"
)

const (
	// clientTimeout bounds a request. An agent responds from memory, only its history is read from disk.
	clientTimeout = 10 * time.Second
	// maxResponseBytes bounds what a client reads.
	maxResponseBytes = 64 << 20
)

// Client sends requests to a running agent.
type Client struct {
	socket string
	http   *http.Client
}

// NewClient makes a Client for a socket. It connects with each request.
func NewClient(socket string) *Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}
	transport := &http.Transport{DialContext: dial, DisableKeepAlives: true}
	return &Client{socket: socket, http: &http.Client{Timeout: clientTimeout, Transport: transport}}
}

// Socket is the path of the socket.
func (c *Client) Socket() string { return c.socket }

// Status returns the state of the agent.
func (c *Client) Status(ctx context.Context) (Status, error) {
	var status Status
	err := c.doJSON(ctx, http.MethodGet, "/v1/status", &status)
	return status, err
}

// Plan returns the plan that a source delivered last, byte for byte; empty if there was none.
func (c *Client) Plan(ctx context.Context, source string) ([]byte, error) {
	return c.do(ctx, http.MethodGet, sourcePath(source, "plan"))
}

// History lists the attempts at plans of a source, the oldest first.
func (c *Client) History(ctx context.Context, source string) ([]journal.Attempt, error) {
	var attempts []journal.Attempt
	err := c.doJSON(ctx, http.MethodGet, sourcePath(source, "history"), &attempts)
	return attempts, err
}

// Retry makes the agent retry the plan of a source now. The error says why it cannot.
func (c *Client) Retry(ctx context.Context, source string) error {
	return c.doJSON(ctx, http.MethodPost, sourcePath(source, "retry"), &struct{}{})
}

func sourcePath(source, resource string) string {
	return "/v1/sources/" + url.PathEscape(source) + "/" + resource
}

func (c *Client) doJSON(ctx context.Context, method, path string, into any) error {
	raw, err := c.do(ctx, method, path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return fmt.Errorf("decoding the agent's response: %w", err)
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
		return nil, fmt.Errorf("connecting to the agent on %s: must be run as root", c.socket)
	case closed(err):
		return nil, fmt.Errorf("%w on %s: it stopped before it responded", ErrNotRunning, c.socket)
	case err != nil:
		return nil, fmt.Errorf("connecting to the agent on %s: %w", c.socket, err)
	}
	defer response.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(response.Body, maxResponseBytes+1))
	if closed(err) {
		return nil, fmt.Errorf("%w on %s: it stopped while it responded", ErrNotRunning, c.socket)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the agent's response: %w", err)
	}
	if len(raw) > maxResponseBytes {
		return nil, fmt.Errorf("reading the agent's response: larger than %d bytes", maxResponseBytes)
	}
	if response.StatusCode != http.StatusOK {
		var failed errorResponse
		if json.Unmarshal(raw, &failed) != nil || failed.Error == "" {
			failed.Error = response.Status
		}
		return nil, errors.New(failed.Error)
	}
	return raw, nil
}

// closed is true for the error of a connection that the agent's end closed: its process has ended.
func closed(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}
