package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/semaphore"

	"github.com/drover-dev/drover/agent/config"
	"github.com/drover-dev/drover/agent/engine"
	"github.com/drover-dev/drover/agent/host"
	"github.com/drover-dev/drover/agent/host/run"
	"github.com/drover-dev/drover/agent/host/systemd"
)

// The environment variables of the agent.
const (
	envConfig   = "CATTLE_AGENT_CONFIG"
	envLogLevel = "CATTLE_LOGLEVEL"
	envStrict   = "CATTLE_AGENT_STRICT_VERIFY"
)

func newRun() *cobra.Command {
	path := os.Getenv(envConfig)
	if path == "" {
		path = config.DefaultPath
	}
	cmd := &cobra.Command{
		Use:     "run",
		Aliases: []string{"sentinel"},
		Short:   "Run the agent",
		Long:    "Run the agent: watch for plans and apply them until it is stopped.",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := newLog(cmd.OutOrStdout(), os.Getenv(envLogLevel))
			if err != nil {
				return err
			}
			return runAgent(cmd.Context(), path, log)
		},
	}
	cmd.Flags().StringVar(&path, "config", path, "configuration file (also $"+envConfig+")")
	return cmd
}

// newLog returns a logger for a level of the original agent's names, which install scripts write.
func newLog(w io.Writer, level string) (*slog.Logger, error) {
	levels := map[string]slog.Level{
		"trace": slog.LevelDebug, "debug": slog.LevelDebug, "": slog.LevelInfo, "info": slog.LevelInfo,
		"warn": slog.LevelWarn, "warning": slog.LevelWarn, "error": slog.LevelError, "fatal": slog.LevelError, "panic": slog.LevelError,
	}
	value, found := levels[strings.ToLower(level)]
	if !found {
		return nil, fmt.Errorf("%s: unknown level %q: use debug, info, warn or error", envLogLevel, level)
	}
	text := slog.NewTextHandler(w, &slog.HandlerOptions{Level: value})
	if w == io.Writer(os.Stdout) && systemd.StdoutIsJournald() {
		return slog.New(systemd.NewJournaldHandler(value, text)), nil
	}
	return slog.New(text), nil
}

// isTrue reports whether a variable is true, as the install script takes it.
func isTrue(value string) bool { return strings.EqualFold(value, "true") || value == "1" }

// runAgent runs the agent until ctx is done, or until a reload replaces the process. The engines stop first; the service manager, metrics
// and commands are served until they have.
func runAgent(ctx context.Context, path string, log *slog.Logger) error {
	if err := requireRoot("plans write system files and start services"); err != nil {
		return err
	}
	cfg, err := config.Load(path)
	if err != nil {
		return err
	}
	reload, endReload := notifyReload()
	defer endReload()
	machine := host.Local{}
	service := newService(systemd.Notify, systemd.WatchdogInterval(), log)
	images := newImageStore(cfg, machine, log)
	options := engine.Options{
		Gate: semaphore.NewWeighted(1), Host: machine, Log: log, Images: images, Environment: os.Environ(),
		WorkDirectory: cfg.WorkDirectory, StateDirectory: cfg.StateDirectory, PreserveWorkDirectory: cfg.PreserveWorkDirectory,
		AppliedPlanDirectory: cfg.AppliedPlanDirectory, InterlockDirectory: cfg.InterlockDirectory,
		InstructionTimeout: time.Duration(cfg.InstructionTimeout), PeriodicTimeout: time.Duration(cfg.PeriodicTimeout),
	}
	// started ends with a signal, and not with a reload.
	started := ctx
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	replace := replacer(service, cancel, log)
	runHub, err := newHubEngine(cfg, path, options, service, replace)
	if err != nil {
		return err
	}
	stopped := make(chan struct{})
	var servers, engines sync.WaitGroup
	servers.Go(func() { service.run(ctx, stopped) })
	servers.Go(func() { serveMetrics(ctx, cfg, service.list, log) })
	servers.Go(func() { serveTunnel(ctx, cfg, log) })
	servers.Go(func() { serveControl(ctx, cfg, path, service, log) })
	log.Info("Agent started", "version", Version, "config", path)
	servers.Go(func() { removeOldCache(cfg, machine, log) })
	servers.Go(func() { images.Run(ctx) })
	servers.Go(func() {
		if awaitReload(ctx, reload, options.Gate, log) {
			replace()
		}
	})
	if cfg.LocalEnabled {
		local := localPlans{options: options, service: service, log: log}
		engines.Go(func() { local.run(ctx, cfg) })
	}
	err = runHub(ctx)
	cancel()
	engines.Wait()
	close(stopped)
	servers.Wait()
	if err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	if service.replaced.Load() && started.Err() == nil {
		log.Info("Executing the installed binary")
		return run.Replace()
	}
	log.Info("Agent stopped")
	return nil
}
