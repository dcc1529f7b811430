package metrics

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/drover-dev/drover/agent/config"
)

const (
	// requestTimeout bounds a request; everything that is told is in memory.
	requestTimeout = 10 * time.Second
	maxHeaderBytes = 16 << 10
)

// Options of a Server.
type Options struct {
	Engines Engines
	Version string
	// ListenUnix listens on a socket that only root may open.
	ListenUnix func(path string) (net.Listener, error)
	Log        *slog.Logger
}

// Serve answers on an address of config.ParseMetricsAddress until ctx is done. It fails only where it cannot listen.
func Serve(ctx context.Context, address config.MetricsAddress, options Options) error {
	listener, err := listen(ctx, address, options.ListenUnix)
	if err != nil {
		return fmt.Errorf("listening for metrics on metricsAddress %s: %w", address, err)
	}
	server := &http.Server{Handler: Handler(options), MaxHeaderBytes: maxHeaderBytes,
		ReadTimeout: requestTimeout, WriteTimeout: requestTimeout, IdleTimeout: time.Minute,
		ErrorLog: slog.NewLogLogger(options.Log.Handler(), slog.LevelDebug)}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving metrics on %s: %w", address, err)
	}
	return nil
}

func listen(ctx context.Context, address config.MetricsAddress, unix func(string) (net.Listener, error)) (net.Listener, error) {
	if address.Socket != "" {
		return unix(address.Socket)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address.TCP)
	if err != nil {
		return nil, err
	}
	// The name localhost may be resolved to anything; what counts is where it listens.
	if tcp, ok := listener.Addr().(*net.TCPAddr); !ok || !tcp.IP.IsLoopback() {
		_ = listener.Close()
		return nil, fmt.Errorf("%s is not of the loopback device", listener.Addr())
	}
	return listener, nil
}

// Handler answers /metrics, /healthz and /readyz.
func Handler(options Options) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		p := &Page{}
		p.add(gauge, "system_agent_info", "The agent; always 1.", 1, "version", options.Version)
		p.engines(options.Engines(), time.Now())
		p.Process()
		p.Answer(w)
	})
	mux.HandleFunc("GET /healthz", answer(options.Engines, alive))
	mux.HandleFunc("GET /readyz", answer(options.Engines, ready))
	return mux
}

// alive tells what is wrong with an agent that should be started anew; empty when nothing is.
func alive(engines []Engine) string {
	now := time.Now()
	for _, e := range engines {
		if !e.Alive(now) {
			return fmt.Sprintf("the executor of %s does not answer", e.State().Source)
		}
	}
	return ""
}

// ready tells what keeps the agent from doing what it is told; empty when nothing does.
func ready(engines []Engine) string {
	if problem := alive(engines); problem != "" {
		return problem
	}
	for _, e := range engines {
		switch s := e.State(); {
		case s.SourceError != "":
			return fmt.Sprintf("%s cannot be reached since %s", s.Source, s.SourceErrorSince.UTC().Format(time.RFC3339))
		case !s.Contacted:
			return s.Source + " has not been reached yet"
		}
	}
	return ""
}

func answer(engines Engines, check func([]Engine) string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("Cache-Control", "no-store")
		if problem := check(engines()); problem != "" {
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprintln(w, problem)
			return
		}
		fmt.Fprintln(w, "ok")
	}
}
