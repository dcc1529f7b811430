package control

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/drover-dev/drover/agent/engine"
	"github.com/drover-dev/drover/agent/httpserver"
	"github.com/drover-dev/drover/agent/upgrade"
)

// Server serves the API.
type Server struct {
	// Status is the process's part of the status; Sources and Upgrade are filled in for each request.
	Status Status
	// Engines returns the engines by the name of their source. It is called for each request, since local plans are added and removed.
	Engines func() map[string]Engine
	// Upgrade returns the status of the last upgrade of the agent; nil is none.
	Upgrade func() *upgrade.Status
	// Log gets refused requests.
	Log *slog.Logger
	// allowed are the user ids that may connect; nil means root and the agent's own.
	allowed []uint32
}

// Serve serves until ctx ends, and closes the listener. It returns an error only if the listener fails.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	return httpserver.Serve(ctx, listener, &http.Server{Handler: s.handler(), ConnContext: withPeerUID}, s.Log)
}

func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/status", func(w http.ResponseWriter, _ *http.Request) { s.respond(w, http.StatusOK, s.status()) })
	mux.HandleFunc("GET /v1/sources/{name}/plan", s.withEngine(func(w http.ResponseWriter, e Engine) {
		w.Header().Set("Content-Type", "application/octet-stream")
		_, _ = w.Write(e.Plan())
	}))
	mux.HandleFunc("GET /v1/sources/{name}/history", s.withEngine(func(w http.ResponseWriter, e Engine) {
		attempts, err := e.History()
		if err != nil {
			s.fail(w, http.StatusInternalServerError, err.Error())
			return
		}
		s.respond(w, http.StatusOK, attempts)
	}))
	mux.HandleFunc("POST /v1/sources/{name}/retry", s.withEngine(func(w http.ResponseWriter, e Engine) {
		if err := e.Retry(); err != nil {
			s.fail(w, http.StatusConflict, err.Error())
			return
		}
		s.respond(w, http.StatusOK, struct{}{})
	}))
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		s.fail(w, http.StatusNotFound, "unknown request: is this agent older than the command?")
	})
	return s.requireOwner(mux)
}

func (s *Server) status() Status {
	status := s.Status
	status.Sources = []engine.State{}
	if s.Upgrade != nil {
		status.Upgrade = s.Upgrade()
	}
	for name, e := range s.Engines() {
		state := e.State()
		state.Source = cmp.Or(state.Source, name)
		status.Sources = append(status.Sources, state)
	}
	slices.SortFunc(status.Sources, func(a, b engine.State) int { return cmp.Compare(sortKey(a), sortKey(b)) })
	return status
}

// sortKey puts the hub before all others.
func sortKey(s engine.State) string {
	if s.Source == engine.HubName {
		return ""
	}
	return s.Source
}

// withEngine passes the engine of the source in the path to a handler.
func (s *Server) withEngine(handle func(http.ResponseWriter, Engine)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		engines := s.Engines()
		e, found := engines[r.PathValue("name")]
		if !found {
			s.fail(w, http.StatusNotFound, fmt.Sprintf("no plan source %q: this agent has %q", r.PathValue("name"),
				slices.Sorted(maps.Keys(engines))))
			return
		}
		handle(w, e)
	}
}

type peerUIDKey struct{}

// withPeerUID adds the user id of the process that has connected.
func withPeerUID(ctx context.Context, conn net.Conn) context.Context {
	unixConn, ok := conn.(*net.UnixConn)
	if !ok {
		return ctx
	}
	raw, err := unixConn.SyscallConn()
	if err != nil {
		return ctx
	}
	var cred *unix.Ucred
	control := func(fd uintptr) { cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }
	if raw.Control(control) != nil || err != nil || cred == nil {
		return ctx
	}
	return context.WithValue(ctx, peerUIDKey{}, cred.Uid)
}

// requireOwner refuses everyone but root and the agent's own user. The mode of the socket does that, too, unless somebody changes it or
// passes the socket on.
func (s *Server) requireOwner(next http.Handler) http.Handler {
	allowed := s.allowed
	if allowed == nil {
		allowed = []uint32{0, uint32(os.Getuid())}
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		uid, known := r.Context().Value(peerUIDKey{}).(uint32)
		if !known || !slices.Contains(allowed, uid) {
			s.Log.Warn("Request on the control socket refused", "uid", uid)
			s.fail(w, http.StatusForbidden, "permission denied: must be run as root")
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (s *Server) respond(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	if err := json.NewEncoder(w).Encode(body); err != nil {
		s.Log.Debug("Sending a response on the control socket failed", "error", err)
	}
}

func (s *Server) fail(w http.ResponseWriter, code int, message string) {
	s.respond(w, code, errorResponse{Error: message})
}
