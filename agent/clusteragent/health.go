package clusteragent

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/drover-dev/drover/agent/metrics"
	"github.com/drover-dev/drover/agent/tunnel"
)

const healthTimeout = 10 * time.Second

func listenHealth(ctx context.Context, address string) (net.Listener, error) {
	if address == "" {
		return nil, nil
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("--health-address: %w", err)
	}
	return listener, nil
}

func serveHealth(ctx context.Context, listener net.Listener, handler http.Handler, log *slog.Logger) {
	if listener == nil {
		return
	}
	server := &http.Server{Handler: handler, MaxHeaderBytes: 16 << 10, ReadTimeout: healthTimeout, WriteTimeout: healthTimeout,
		IdleTimeout: time.Minute, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug)}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	_ = server.Serve(listener)
}

// healthHandler answers /healthz while the process does, /readyz while there is a tunnel, and /metrics. None of it is a secret.
func healthHandler(version string, tunnels func() tunnel.Status, requests func() apiStatus, expires func() time.Time) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if s := tunnels(); s.Sessions == 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprintf(w, "no tunnel to the hub since %s: %s\n", s.Since.UTC().Format(time.RFC3339), s.Problem)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		p := &metrics.Page{}
		p.Gauge("cluster_agent_info", "The agent; always 1.", 1, "version", version)
		s := tunnels()
		p.Gauge("cluster_agent_tunnel_sessions", "Sessions to replicas of the hub.", float64(s.Sessions))
		p.Counter("cluster_agent_tunnel_attempts_total", "Attempts to connect.", float64(s.Attempts))
		p.Counter("cluster_agent_tunnel_lost_total", "Sessions that ended.", float64(s.Lost))
		p.Gauge("cluster_agent_tunnel_streams", "Streams that the hub has open.", float64(s.OpenStreams))
		p.Counter("cluster_agent_tunnel_streams_total", "Streams that the hub has opened.", float64(s.Streams))
		p.Counter("cluster_agent_tunnel_refused_total", "Dials of the hub that were refused.", float64(s.Refused))
		const bytesName, bytesHelp = "cluster_agent_tunnel_bytes_total", "Bytes of all streams."
		p.Counter(bytesName, bytesHelp, float64(s.Received), "direction", "received")
		p.Counter(bytesName, bytesHelp, float64(s.Sent), "direction", "sent")
		r := requests()
		p.Counter("cluster_agent_requests_total", "Requests of the hub to the Kubernetes API.", float64(r.Requests))
		p.Counter("cluster_agent_requests_refused_total", "Requests that name no user, or a group that is not allowed.", float64(r.Refused))
		p.Counter("cluster_agent_requests_failed_total", "Requests for which the Kubernetes API could not be reached.", float64(r.Failed))
		const nowName, nowHelp = "cluster_agent_requests", "Requests that are being answered."
		p.Gauge(nowName, nowHelp, float64(r.Short), "kind", "short")
		p.Gauge(nowName, nowHelp, float64(r.Long), "kind", "long")
		p.Since("cluster_agent_credential_expiry_seconds", "When the agent's credential expires.", expires())
		p.Process()
		p.Answer(w)
	})
	return mux
}
