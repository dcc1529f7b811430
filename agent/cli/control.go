package cli

import (
	"context"
	"log/slog"
	"os"
	"time"

	"github.com/drover-dev/drover/agent/config"
	"github.com/drover-dev/drover/agent/control"
	"github.com/drover-dev/drover/agent/host"
)

// serveControl answers the commands for as long as ctx is not done. An agent that cannot is not worse at what it is for, so it goes on.
func serveControl(ctx context.Context, cfg config.Config, configFile string, agents func() map[string]control.Agent, log *slog.Logger) {
	path := cfg.SocketPath()
	if path == "" {
		return
	}
	listener, err := host.Machine{}.Listen(path)
	if err == nil {
		server := &control.Server{Agents: agents, Log: log, Status: control.Status{
			Version: Version, PID: os.Getpid(), Started: time.Now().UTC(), ConfigFile: configFile, StateDirectory: cfg.StateDirectory,
		}}
		err = server.Serve(ctx, listener)
	}
	if err != nil {
		log.Error("The commands status, logs and so on get no answer from this agent", "socket", path, "error", err)
	}
}

// agents are the engines by name.
func (s *service) agents() map[string]control.Agent {
	out := map[string]control.Agent{}
	for _, w := range s.all() {
		if agent, ok := w.(control.Agent); ok {
			out[agent.State().Source] = agent
		}
	}
	return out
}
