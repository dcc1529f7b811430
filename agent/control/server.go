package control

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/drover-dev/drover/agent/engine"
)

const (
	// requestTimeout is for a request's headers, shutdownTimeout for answers that are under way when the agent stops.
	requestTimeout  = 10 * time.Second
	shutdownTimeout = 2 * time.Second
	// firstSource comes before all others in lists.
	firstSource = "hub"
)

// Server answers on the socket.
type Server struct {
	// Status is the process's part of the answer; its Sources are filled in for each request.
	Status Status
	// Agents gives the engines by name; it is called for each request, since local plans come and go.
	Agents func() map[string]Agent
	Log    *slog.Logger
	// allowed are the user ids that may ask; nil means root and the agent's own.
	allowed []uint32
}

// Serve answers until ctx is done, and closes the listener.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	server := &http.Server{
		Handler: s.handler(), ReadHeaderTimeout: requestTimeout, IdleTimeout: requestTimeout, MaxHeaderBytes: 8 << 10,
		ConnContext: withPeer, ErrorLog: slog.NewLogLogger(s.Log.Handler(), slog.LevelDebug),
	}
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		ending, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
		defer cancel()
		_ = server.Shutdown(ending)
	})
	err := server.Serve(listener)
	if !stop() {
		<-stopped
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serving on %s: %w", listener.Addr(), err)
}

func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/status", func(w http.ResponseWriter, _ *http.Request) { s.answer(w, s.status()) })
	mux.HandleFunc("GET /v1/sources/{name}/plan", s.about(func(w http.ResponseWriter, agent Agent) {
		w.Header().Set("Content-Type", "application/octet-stream")
		_, _ = w.Write(agent.Plan())
	}))
	mux.HandleFunc("GET /v1/sources/{name}/history", s.about(func(w http.ResponseWriter, agent Agent) {
		attempts, err := agent.History()
		if err != nil {
			s.fail(w, http.StatusInternalServerError, err.Error())
			return
		}
		s.answer(w, attempts)
	}))
	mux.HandleFunc("POST /v1/sources/{name}/retry", s.about(func(w http.ResponseWriter, agent Agent) {
		if err := agent.Retry(); err != nil {
			s.fail(w, http.StatusConflict, err.Error())
			return
		}
		s.answer(w, struct{}{})
	}))
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		s.fail(w, http.StatusNotFound, "this agent does not know that request")
	})
	return s.onlyOwner(mux)
}

func (s *Server) status() Status {
	status := s.Status
	status.Sources = []engine.State{}
	for name, agent := range s.Agents() {
		state := agent.State()
		state.Source = cmp.Or(state.Source, name)
		status.Sources = append(status.Sources, state)
	}
	slices.SortFunc(status.Sources, func(a, b engine.State) int {
		if first := (b.Source == firstSource); (a.Source == firstSource) != first {
			if first {
				return 1
			}
			return -1
		}
		return cmp.Compare(a.Source, b.Source)
	})
	return status
}

func (s *Server) about(do func(http.ResponseWriter, Agent)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		agents := s.Agents()
		agent, found := agents[r.PathValue("name")]
		if !found {
			s.fail(w, http.StatusNotFound, fmt.Sprintf("there is no source of plans named %q, only %q", r.PathValue("name"), slices.Sorted(maps.Keys(agents))))
			return
		}
		do(w, agent)
	}
}

type peerKey struct{}

// withPeer notes who has connected.
func withPeer(ctx context.Context, conn net.Conn) context.Context {
	unixConn, ok := conn.(*net.UnixConn)
	if !ok {
		return ctx
	}
	raw, err := unixConn.SyscallConn()
	if err != nil {
		return ctx
	}
	var cred *unix.Ucred
	if err := raw.Control(func(fd uintptr) { cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil || cred == nil {
		return ctx
	}
	return context.WithValue(ctx, peerKey{}, cred.Uid)
}

// onlyOwner refuses everyone but root and the agent's own user. The mode of the socket does that already; this holds when somebody
// changes the mode, or hands the socket on.
func (s *Server) onlyOwner(next http.Handler) http.Handler {
	allowed := s.allowed
	if allowed == nil {
		allowed = []uint32{0, uint32(os.Getuid())}
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		uid, known := r.Context().Value(peerKey{}).(uint32)
		if !known || !slices.Contains(allowed, uid) {
			s.Log.Warn("A request on the control socket was refused", "uid", uid)
			s.fail(w, http.StatusForbidden, "only root may ask the agent")
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (s *Server) answer(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(value); err != nil {
		s.Log.Debug("An answer on the control socket could not be sent", "error", err)
	}
}

func (s *Server) fail(w http.ResponseWriter, code int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(failure{Error: message})
}
