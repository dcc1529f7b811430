package clusteragent

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/drover-dev/drover/agent/httpserver"
	"github.com/drover-dev/drover/agent/metrics"
	"github.com/drover-dev/drover/agent/tunnel"
)

// listenHealth returns nil without an error if address is empty.
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
	if err := httpserver.Serve(ctx, listener, &http.Server{Handler: handler}, log); err != nil {
		log.Error("Serving health and metrics failed", "error", err)
	}
}

// healthHandler serves /healthz, which always succeeds, /readyz, which succeeds while a tunnel is connected, and /metrics.
func healthHandler(version string, tunnels func() tunnel.Status, requests func() apiStatus, expiresAt func() time.Time) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if s := tunnels(); s.Sessions == 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprintf(w, "no tunnel to the hub since %s: %s\n", s.Since.UTC().Format(time.RFC3339), s.LastError)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		p := &metrics.Page{}
		p.Gauge("cluster_agent_info", "Version of the agent; always 1.", 1, "version", version)
		s := tunnels()
		p.Gauge("cluster_agent_tunnel_sessions", "Sessions with replicas of the hub.", float64(s.Sessions))
		p.Counter("cluster_agent_tunnel_attempts_total", "Attempts to connect.", float64(s.Attempts))
		p.Counter("cluster_agent_tunnel_lost_total", "Sessions that ended.", float64(s.Lost))
		p.Gauge("cluster_agent_tunnel_streams", "Open streams of the hub.", float64(s.OpenStreams))
		p.Counter("cluster_agent_tunnel_streams_total", "Streams of the hub.", float64(s.Streams))
		p.Counter("cluster_agent_tunnel_refused_total", "Dials of the hub that were refused or failed.", float64(s.Refused))
		const bytesName, bytesHelp = "cluster_agent_tunnel_bytes_total", "Bytes of all streams."
		p.Counter(bytesName, bytesHelp, float64(s.Received), "direction", "received")
		p.Counter(bytesName, bytesHelp, float64(s.Sent), "direction", "sent")
		r := requests()
		p.Counter("cluster_agent_requests_total", "Requests of the hub to the Kubernetes API.", float64(r.Requests))
		p.Counter("cluster_agent_requests_refused_total", "Requests refused because of their user or groups.", float64(r.Refused))
		p.Counter("cluster_agent_requests_failed_total", "Requests that did not reach the Kubernetes API.", float64(r.Failed))
		const activeName, activeHelp = "cluster_agent_requests", "Active requests."
		p.Gauge(activeName, activeHelp, float64(r.Short), "kind", "short")
		p.Gauge(activeName, activeHelp, float64(r.Long), "kind", "long")
		p.Timestamp("cluster_agent_credential_expiry_timestamp_seconds", "When the agent's credential expires.", expiresAt())
		p.Process()
		p.Respond(w)
	})
	return mux
}
