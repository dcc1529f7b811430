package machinessh

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"strconv"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"

	"github.com/drover-dev/drover/hub/util/response"
)

const (
	// greeting begins what an SSH server sends first (RFC 4253, section 4.2).
	greeting        = "SSH-"
	greetingTimeout = 20 * time.Second
)

// hasTunnel reports whether the machine has a session, here or at another replica.
func (h *Handler) hasTunnel(key string) bool {
	if _, here := h.Tunnels.Route(key); here {
		return true
	}
	_, there := h.Remote.Owner(key)
	return there
}

// connect makes the request a connection to the SSH server of a machine, through its tunnel, until either end closes it.
func (h *Handler) connect(ctx context.Context, w http.ResponseWriter, r *http.Request, s *state) error {
	if route, here := h.Tunnels.Route(s.tunnel); !here || route.Suspect {
		if owner, there := h.Remote.Owner(s.tunnel); there && !h.FromPeer(r) {
			h.forward(w, r, owner)
			return nil
		}
		if !here {
			return response.Retry(response.DefaultRetry, "the agent of the machine has no tunnel to the hub; set tunnel.enabled in its "+
				"configuration, or connect without the hub: hub machine ssh --direct")
		}
	}
	machine, err := h.dial(ctx, s)
	if err != nil {
		return err
	}
	defer machine.Close()
	defer context.AfterFunc(h.stopped, func() { _ = machine.Close() })()
	controller := http.NewResponseController(w)
	user, buffered, err := controller.Hijack()
	if err != nil {
		return fmt.Errorf("taking over the connection of a user: %w", err)
	}
	defer user.Close()
	const head = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " + Protocol + "\r\n\r\n"
	if _, err := io.WriteString(user, head); err != nil {
		return nil // the user has gone
	}
	join(user, buffered.Reader, machine)
	return nil
}

// server is a connection to an SSH server whose first bytes have been read.
type server struct {
	net.Conn
	read *bufio.Reader
}

func (s *server) Read(p []byte) (int, error) { return s.read.Read(p) }

// dial connects to the SSH server at the machine itself. Its first bytes show that it is one, so that nothing else is reached this way.
func (h *Handler) dial(ctx context.Context, s *state) (net.Conn, error) {
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(s.access.Port))
	conn, err := h.Tunnels.Dial(ctx, s.tunnel, "tcp", address)
	if err != nil {
		return nil, response.Errorf(http.StatusBadGateway, "the machine is not reached through its tunnel: %v", err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(greetingTimeout))
	reader := bufio.NewReader(conn)
	first, err := reader.Peek(len(greeting))
	if err == nil && string(first) != greeting {
		err = errors.New("what answers there is no SSH server")
	}
	if err != nil {
		_ = conn.Close()
		return nil, response.Errorf(http.StatusBadGateway, "the SSH server of the machine is not reached through its tunnel: %v; "+
			"its agent must allow %s in tunnel.allow", err, address)
	}
	_ = conn.SetReadDeadline(time.Time{})
	return &server{conn, reader}, nil
}

// join copies both ways until one of both ends.
func join(user net.Conn, input io.Reader, machine net.Conn) {
	var both errgroup.Group
	end := func() { _ = user.Close(); _ = machine.Close() }
	both.Go(func() error {
		defer end()
		_, err := io.Copy(machine, input)
		return err
	})
	both.Go(func() error {
		defer end()
		_, err := io.Copy(user, machine)
		return err
	})
	_ = both.Wait() // how it ends is seen at both ends
}

// forward passes the request on to the replica that has the session.
func (h *Handler) forward(w http.ResponseWriter, r *http.Request, owner http.RoundTripper) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(h.stopped, cancel)()
	proxy := &httputil.ReverseProxy{
		Rewrite: func(out *httputil.ProxyRequest) {
			out.Out.Header.Del("Authorization")
			out.Out.Header.Del("Cookie")
		},
		Transport: owner,
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			h.refuse(w, r, response.Retry(response.DefaultRetry, "the replica of the hub that has the machine's tunnel does not answer: %v", err))
		},
		ErrorLog: slog.NewLogLogger(logr.ToSlogHandler(h.Logger), slog.LevelDebug),
	}
	proxy.ServeHTTP(w, r.WithContext(ctx))
}
