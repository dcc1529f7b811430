package metrics

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/drover-dev/drover/agent/config"
	"github.com/drover-dev/drover/agent/host/fs"
	"github.com/drover-dev/drover/agent/httpserver"
)

// Options of the endpoints.
type Options struct {
	// Engines returns the engines to report about.
	Engines Engines
	// Version is that of the agent.
	Version string
	// Log gets errors of connections, with level debug.
	Log *slog.Logger
}

// Serve serves Handler on an address of config.ParseMetricsAddress until ctx ends. It returns an error only if it cannot listen.
func Serve(ctx context.Context, address config.MetricsAddress, options Options) error {
	listener, err := listen(ctx, address)
	if err != nil {
		return fmt.Errorf("listening for metrics on metricsAddress %s: %w", address, err)
	}
	return httpserver.Serve(ctx, listener, &http.Server{Handler: Handler(options)}, options.Log)
}

func listen(ctx context.Context, address config.MetricsAddress) (net.Listener, error) {
	if address.Socket != "" {
		return fs.Listen(address.Socket)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address.TCP)
	if err != nil {
		return nil, err
	}
	// localhost may resolve to anything, so check where it really listens.
	if tcp, ok := listener.Addr().(*net.TCPAddr); !ok || !tcp.IP.IsLoopback() {
		_ = listener.Close()
		return nil, fmt.Errorf("%s is not a loopback address", listener.Addr())
	}
	return listener, nil
}

// Handler serves /metrics, /healthz and /readyz. The health checks respond "ok", or 503 and the problem.
func Handler(options Options) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		p := &Page{}
		p.Gauge("system_agent_info", "The agent; always 1.", 1, "version", options.Version)
		p.engines(options.Engines(), time.Now())
		p.Process()
		p.Respond(w)
	})
	mux.HandleFunc("GET /healthz", healthHandler(options.Engines, livenessProblem))
	mux.HandleFunc("GET /readyz", healthHandler(options.Engines, readinessProblem))
	return mux
}

// livenessProblem is why the agent should be restarted; empty if it is healthy.
func livenessProblem(engines []Engine) string {
	now := time.Now()
	for _, e := range engines {
		if !e.Alive(now) {
			return fmt.Sprintf("engine of %s does not respond", e.State().Source)
		}
	}
	return ""
}

// readinessProblem is why the agent cannot apply plans; empty if it can.
func readinessProblem(engines []Engine) string {
	if problem := livenessProblem(engines); problem != "" {
		return problem
	}
	for _, e := range engines {
		switch s := e.State(); {
		case s.SourceError != "":
			return fmt.Sprintf("%s is unreachable since %s", s.Source, s.SourceErrorSince.UTC().Format(time.RFC3339))
		case !s.Contacted:
			return s.Source + " has not been reached yet"
		}
	}
	return ""
}

func healthHandler(engines Engines, problem func([]Engine) string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("Cache-Control", "no-store")
		if text := problem(engines()); text != "" {
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprintln(w, text)
			return
		}
		fmt.Fprintln(w, "ok")
	}
}
