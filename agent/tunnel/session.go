package tunnel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/gorilla/websocket"
	"github.com/rancher/remotedialer"

	"github.com/drover-dev/drover/agent/registration"
)

const (
	handshakeTimeout = 15 * time.Second
	// bufferBytes is how much of a stream goes into one frame. The websocket library's own 4 KiB cost the hub a third more.
	bufferBytes = 64 << 10
	// maxMessage bounds what the hub sends at once. Hubs of other software send what one write got, which may be a whole request.
	maxMessage = 16 << 20
	// farewell is how long the hub gets to read that the agent goes.
	farewell = time.Second
)

// session is one websocket to one replica of the hub.
type session struct {
	ws      *websocket.Conn
	server  string
	replica string
	start   time.Time
}

// Refusal is an answer of the hub other than a session.
type Refusal struct {
	Code       int
	Message    string
	RetryAfter time.Duration
}

func (r *Refusal) Error() string { return fmt.Sprintf("the hub refuses (%d): %s", r.Code, r.Message) }

// errHeld tells that a load balancer has led to a replica that there is a session to.
var errHeld = errors.New("the hub's replica that answers has a session already")

func retryAfter(err error) time.Duration {
	if refusal := (*Refusal)(nil); errors.As(err, &refusal) {
		return refusal.RetryAfter
	}
	return 0
}

// open makes a session to a replica that is not held.
func (c *Client) open(ctx context.Context, held []string) (*session, error) {
	access, err := c.Access(ctx)
	if err != nil {
		return nil, err
	}
	address, err := websocketURL(access.Server)
	if err != nil {
		return nil, err
	}
	header := http.Header{agentHeader: {c.Agent}, "Authorization": {"Bearer " + access.Token}}
	if len(held) > 0 {
		header.Set(heldHeader, strings.Join(held, ","))
	}
	proxy := access.Proxy
	if proxy == nil {
		proxy = http.ProxyFromEnvironment
	}
	dialer := websocket.Dialer{Proxy: proxy, NetDialContext: dialWatched, TLSClientConfig: access.TLS,
		HandshakeTimeout: handshakeTimeout, ReadBufferSize: bufferBytes, WriteBufferSize: bufferBytes}
	c.counters.attempts.Add(1)
	ws, response, err := dialer.DialContext(ctx, address, header)
	if response != nil {
		defer response.Body.Close()
		c.noteReplicas(response.Header)
	}
	switch {
	case err == nil:
	case response == nil:
		return nil, err
	case response.StatusCode == http.StatusConflict && response.Header.Get(replicaHeader) != "":
		return nil, errHeld
	case response.StatusCode == http.StatusUnauthorized && c.Refused != nil:
		c.Refused(access.Token)
		fallthrough
	default:
		return nil, readRefusal(response)
	}
	replica := response.Header.Get(replicaHeader)
	for _, other := range held {
		if other == replica {
			return nil, errors.Join(errHeld, ws.Close())
		}
	}
	ws.SetReadLimit(maxMessage)
	return &session{ws: ws, server: access.Server, replica: replica, start: time.Now()}, nil
}

func websocketURL(server string) (string, error) {
	u, err := url.Parse(server)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return "", fmt.Errorf("the hub's URL %q is not of the form https://hub.example.com", server)
	}
	u.Scheme = map[string]string{"https": "wss", "http": "ws"}[u.Scheme]
	return u.JoinPath(endpoint).String(), nil
}

func readRefusal(response *http.Response) *Refusal {
	// The websocket library has read the first kilobyte, and closed what follows.
	body, _ := io.ReadAll(response.Body)
	r := &Refusal{Code: response.StatusCode, Message: registration.OneLine(body), RetryAfter: registration.RetryAfter(response.Header, time.Now())}
	if r.Message == "" {
		r.Message = http.StatusText(r.Code)
	}
	return r
}

func (c *Client) noteReplicas(header http.Header) {
	if n, err := strconv.ParseUint(header.Get(replicasHeader), 10, 16); err == nil {
		c.mu.Lock()
		c.replicas = int(n)
		c.mu.Unlock()
	}
}

// serve runs the session until it ends or ctx is done. Nothing of it is left when it returns, but for streams that are about to see that
// their connection is closed.
func (s *session) serve(ctx context.Context, dial remotedialer.Dialer) error {
	// Every dial is let through here, and refused by the dialer: a "no" at this place would end the session with all its streams.
	all := func(string, string) bool { return true }
	session := remotedialer.NewClientSessionWithDialer(all, s.ws, dial)
	stop := context.AfterFunc(ctx, func() {
		_ = s.ws.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseGoingAway, "the agent stops"), time.Now().Add(farewell))
		_ = s.ws.Close()
	})
	defer stop()
	serving, cancel := context.WithCancel(ctx)
	defer cancel()
	_, err := session.Serve(serving)
	// The socket is closed first, since closing the session waits for whoever writes to it.
	_ = s.ws.Close()
	session.Close()
	return err
}

// describe says why a session ended.
func describe(err error) string {
	if closed := (*websocket.CloseError)(nil); errors.As(err, &closed) {
		text := registration.OneLine([]byte(closed.Text))
		switch closed.Code {
		case websocket.CloseGoingAway:
			return strings.TrimSuffix("the hub asks to connect again: "+text, ": ")
		case websocket.CloseAbnormalClosure: // which nobody sends: there was no goodbye
			return "the connection to the hub broke off"
		}
		return strings.TrimSuffix(fmt.Sprintf("the hub closed it (%d): %s", closed.Code, text), ": ")
	}
	if timeout := net.Error(nil); errors.As(err, &timeout) && timeout.Timeout() {
		return fmt.Sprintf("nothing came from the hub, or went to it, for %s", silence)
	}
	return err.Error()
}
