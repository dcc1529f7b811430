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
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"github.com/drover-dev/drover/agent/printable"
	"github.com/drover-dev/drover/agent/registration"
	"github.com/drover-dev/drover/tunnel/session"
	"github.com/drover-dev/drover/tunnel/wire"
)

const (
	handshakeTimeout = 15 * time.Second
	// readBuffer is the size in bytes of a session's buffer for reading. Data is read past it.
	readBuffer = 4 << 10
	// pingInterval and syncInterval are the times between pings, and between lists of the streams that the agent has.
	pingInterval = 5 * time.Second
	syncInterval = time.Minute
)

// limits bound what a hub may cost the agent. Other hubs send the data of one write in one message, which may be a whole request.
var limits = session.Limits{Message: 16 << 20, Process: 64 << 20, Streams: maxStreams, Write: idleTimeout}

// hubSession is a session with one replica of the hub.
type hubSession struct {
	ws      *websocket.Conn
	server  string
	replica string
	started time.Time
	// directional says that the hub keeps a pause for each direction of a stream.
	directional bool
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
func (c *Client) connect(ctx context.Context, connected []string) (*hubSession, error) {
	access, err := c.Access(ctx)
	if err != nil {
		return nil, err
	}
	address, err := websocketURL(access.Server)
	if err != nil {
		return nil, err
	}
	header := http.Header{agentHeader: {c.Agent}, wire.FlowHeader: {wire.Directional}, "Authorization": {"Bearer " + access.Token}}
	if len(connected) > 0 {
		header.Set(connectedHeader, strings.Join(connected, ","))
	}
	proxy := access.Proxy
	if proxy == nil {
		proxy = http.ProxyFromEnvironment
	}
	dialer := websocket.Dialer{Proxy: proxy, NetDialContext: dialHub, TLSClientConfig: access.TLS,
		HandshakeTimeout: handshakeTimeout, ReadBufferSize: readBuffer, WriteBufferPool: &sync.Pool{}}
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
	return &hubSession{ws: ws, server: access.Server, replica: replica, started: time.Now(),
		directional: response.Header.Get(wire.FlowHeader) == wire.Directional}, nil
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

// serve runs the session until it ends or ctx is done. When it returns, all goroutines of the session have ended.
func (s *hubSession) serve(ctx context.Context, c *Client) error {
	running := session.New(c.shared, session.NewSocket(s.ws.NetConn(), c.shared), s.ws, session.Options{
		Peer: s.server, Dial: c.dial, Client: true, Directional: s.directional,
		OnViolation: func(what string) {
			c.Log.Debug("Hub violated the tunnel protocol; further violations of this session are not logged", "hub", s.server, "what", what)
		},
	})
	stop := context.AfterFunc(ctx, func() {
		running.Close(session.Ended("stop", "the agent stops"), websocket.CloseGoingAway)
	})
	defer stop()
	ended := make(chan struct{})
	var pinging sync.WaitGroup
	pinging.Go(func() { ping(running, ended) })
	end := running.Serve()
	close(ended)
	pinging.Wait()
	return end
}

// ping pings the hub and sends it the list of streams until the session has ended.
func ping(running *session.Session, ended <-chan struct{}) {
	pings, syncs := time.NewTicker(pingInterval), time.NewTicker(syncInterval)
	defer pings.Stop()
	defer syncs.Stop()
	for {
		select {
		case <-ended:
			return
		case <-pings.C:
			running.Ping()
		case <-syncs.C:
			running.Sync()
		}
	}
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
