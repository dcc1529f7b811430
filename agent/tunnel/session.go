package tunnel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gorilla/websocket"
	"github.com/rancher/remotedialer"

	"github.com/drover-dev/drover/agent/printable"
	"github.com/drover-dev/drover/agent/registration"
)

const (
	handshakeTimeout = 15 * time.Second
	// bufferBytes is the largest part of a stream in one frame. The 4 KiB of the websocket library cost the hub a third more CPU.
	bufferBytes = 64 << 10
	// maxMessageBytes bounds a message of the hub. Other hubs send the data of one write, which may be a whole request.
	maxMessageBytes = 16 << 20
	// closeTimeout is how long the hub has to receive the close frame.
	closeTimeout = time.Second
)

// session is a websocket to one replica of the hub.
type session struct {
	ws      *websocket.Conn
	server  string
	replica string
	started time.Time
}

// errConnected means that the load balancer has chosen a replica that already has a session.
var errConnected = errors.New("the replica of the hub already has a session")

func retryAfter(err error) time.Duration {
	if status := (*registration.StatusError)(nil); errors.As(err, &status) {
		return status.RetryAfter
	}
	return 0
}

// connect opens a session to a replica that is not one of connected.
func (c *Client) connect(ctx context.Context, connected []string) (*session, error) {
	access, err := c.Access(ctx)
	if err != nil {
		return nil, err
	}
	address, err := websocketURL(access.Server)
	if err != nil {
		return nil, err
	}
	header := http.Header{agentHeader: {c.Agent}, "Authorization": {"Bearer " + access.Token}}
	if len(connected) > 0 {
		header.Set(connectedHeader, strings.Join(connected, ","))
	}
	proxy := access.Proxy
	if proxy == nil {
		proxy = http.ProxyFromEnvironment
	}
	dialer := websocket.Dialer{Proxy: proxy, NetDialContext: dialHub, TLSClientConfig: access.TLS,
		HandshakeTimeout: handshakeTimeout, ReadBufferSize: bufferBytes, WriteBufferSize: bufferBytes}
	c.counters.attempts.Add(1)
	ws, response, err := dialer.DialContext(ctx, address, header)
	if response != nil {
		defer response.Body.Close()
		c.setReplicas(response.Header)
	}
	switch {
	case err == nil:
	case response == nil:
		return nil, err
	case response.StatusCode == http.StatusConflict && response.Header.Get(replicaHeader) != "":
		return nil, errConnected
	default:
		if response.StatusCode == http.StatusUnauthorized && c.Unauthorized != nil {
			c.Unauthorized(access.Token)
		}
		// The websocket library has read the first kilobyte, and closed the rest.
		body, _ := io.ReadAll(response.Body)
		return nil, registration.NewStatusError(response.StatusCode, response.Header, body)
	}
	replica := response.Header.Get(replicaHeader)
	if slices.Contains(connected, replica) {
		return nil, errors.Join(errConnected, ws.Close())
	}
	ws.SetReadLimit(maxMessageBytes)
	return &session{ws: ws, server: access.Server, replica: replica, started: time.Now()}, nil
}

func websocketURL(server string) (string, error) {
	u, err := url.Parse(server)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return "", fmt.Errorf("the hub's URL must be such as https://hub.example.com, got %q", server)
	}
	u.Scheme = map[string]string{"https": "wss", "http": "ws"}[u.Scheme]
	return u.JoinPath(endpoint).String(), nil
}

func (c *Client) setReplicas(header http.Header) {
	if n, err := strconv.ParseUint(header.Get(replicasHeader), 10, 16); err == nil {
		c.mu.Lock()
		c.replicas = int(n)
		c.mostReplicas = max(c.mostReplicas, c.replicas)
		c.mu.Unlock()
	}
}

// serve runs the session until it ends or ctx is done. When it returns, all goroutines of the session have ended, but for streams that have
// not noticed yet that their connection is closed.
func (s *session) serve(ctx context.Context, dial remotedialer.Dialer) error {
	// The dialer refuses dials: if remotedialer's own filter refuses one, it ends the session with all its streams.
	allowAll := func(string, string) bool { return true }
	session := remotedialer.NewClientSessionWithDialer(allowAll, s.ws, dial)
	stop := context.AfterFunc(ctx, func() {
		message := websocket.FormatCloseMessage(websocket.CloseGoingAway, "the agent stops")
		_ = s.ws.WriteControl(websocket.CloseMessage, message, time.Now().Add(closeTimeout))
		_ = s.ws.Close()
	})
	defer stop()
	serving, cancel := context.WithCancel(ctx)
	defer cancel()
	_, err := session.Serve(serving)
	// The websocket is closed first, since session.Close waits for its writers.
	_ = s.ws.Close()
	session.Close()
	return err
}

// closeReason says why a session has ended.
func closeReason(err error) string {
	if closed := (*websocket.CloseError)(nil); errors.As(err, &closed) {
		text := printable.Line(closed.Text)
		switch closed.Code {
		case websocket.CloseGoingAway:
			return strings.TrimSuffix("the hub asked to reconnect: "+text, ": ")
		case websocket.CloseAbnormalClosure: // no close frame was received
			return "connection to the hub lost"
		}
		return strings.TrimSuffix(fmt.Sprintf("the hub closed the session (%d): %s", closed.Code, text), ": ")
	}
	if timeout := net.Error(nil); errors.As(err, &timeout) && timeout.Timeout() {
		return fmt.Sprintf("no traffic from or to the hub for %s", idleTimeout)
	}
	return err.Error()
}
