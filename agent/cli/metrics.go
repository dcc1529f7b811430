package cli

import (
	"context"
	"log/slog"

	"github.com/drover-dev/drover/agent/config"
	"github.com/drover-dev/drover/agent/host"
	"github.com/drover-dev/drover/agent/metrics"
)

// serveMetrics tells metrics and health for as long as ctx is not done, where the configuration says so. An agent that cannot is not
// worse at what it is for, so it goes on.
func serveMetrics(ctx context.Context, cfg config.Config, engines metrics.Engines, log *slog.Logger) {
	address, err := config.ParseMetricsAddress(cfg.MetricsAddress)
	if err == nil && address == (config.MetricsAddress{}) {
		return
	}
	if err == nil {
		err = metrics.Serve(ctx, address, metrics.Options{Engines: engines, Version: Version, ListenUnix: host.Machine{}.Listen, Log: log})
	}
	if err != nil {
		log.Error("Metrics and health are not told", "error", err)
	}
}
