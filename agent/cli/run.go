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

	"github.com/drover-dev/drover/agent/config"
	"github.com/drover-dev/drover/agent/engine"
	"github.com/drover-dev/drover/agent/host"
)

// What the agent reads of its environment.
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
		Short:   "Watch for plans and apply them until stopped",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := newLog(cmd.OutOrStdout(), os.Getenv(envLogLevel))
			if err != nil {
				return err
			}
			return run(cmd.Context(), path, log)
		},
	}
	cmd.Flags().StringVar(&path, "config", path, "configuration file (also "+envConfig+")")
	return cmd
}

// newLog makes the log. The names of levels are those that the install script has always written.
func newLog(w io.Writer, level string) (*slog.Logger, error) {
	levels := map[string]slog.Level{
		"trace": slog.LevelDebug, "debug": slog.LevelDebug, "": slog.LevelInfo, "info": slog.LevelInfo,
		"warn": slog.LevelWarn, "warning": slog.LevelWarn, "error": slog.LevelError, "fatal": slog.LevelError, "panic": slog.LevelError,
	}
	value, found := levels[strings.ToLower(level)]
	if !found {
		return nil, fmt.Errorf("%s: %q is none of debug, info, warn and error", envLogLevel, level)
	}
	text := slog.NewTextHandler(w, &slog.HandlerOptions{Level: value})
	if w == io.Writer(os.Stdout) && host.StdoutIsJournal() {
		return slog.New(host.NewJournalHandler(value, text)), nil
	}
	return slog.New(text), nil
}

func run(ctx context.Context, path string, log *slog.Logger) error {
	if os.Getuid() != 0 {
		return errors.New("must be run as root, since plans write system files and start services")
	}
	cfg, err := config.Load(path)
	if err != nil {
		return err
	}
	machine := host.Machine{}
	manager := newService(machine.Notify, host.WatchdogInterval(), log)
	options := engine.Options{
		Gate: engine.NewGate(), Log: log, Images: newStore(cfg, machine, log), Environment: forInstructions(os.Environ()),
		WorkDirectory: cfg.WorkDirectory, StateDirectory: cfg.StateDirectory, PreserveWorkDirectory: cfg.PreserveWorkDirectory,
		AppliedPlanDirectory: cfg.AppliedPlanDirectory, InterlockDirectory: cfg.InterlockDirectory,
		InstructionTimeout: time.Duration(cfg.InstructionTimeout), PeriodicTimeout: time.Duration(cfg.PeriodicTimeout),
	}
	hub, err := newHub(cfg, path, options, machine, manager)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stopped := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() { manager.run(ctx, stopped) })
	watching.Go(func() { serveMetrics(ctx, cfg, manager.engines, log) })
	watching.Go(func() { serveTunnel(ctx, cfg, log) })
	watching.Go(func() { serveControl(ctx, cfg, path, manager.agents, log) })
	log.Info("Agent started", "version", Version, "config", path)
	var working sync.WaitGroup
	if cfg.LocalEnabled {
		plans := localPlans{options: options, machine: machine, manager: manager, log: log}
		working.Go(func() { plans.run(ctx, cfg) })
	}
	err = hub(ctx)
	cancel()
	working.Wait()
	close(stopped)
	watching.Wait()
	if errors.Is(err, context.Canceled) {
		log.Info("Agent stopped")
		return nil
	}
	return err
}

// newHub gives what applies the hub's plans until its context is done; where the hub is not to be asked, that only waits.
func newHub(cfg config.Config, path string, options engine.Options, machine host.Host, manager *service) (func(context.Context) error, error) {
	if !cfg.RemoteEnabled {
		return func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		}, nil
	}
	source, verifier, err := newSource(cfg, path, machine, options.Log)
	if err != nil {
		return nil, err
	}
	options.Source, options.Host, options.Verify = source, manager.host(machine, "hub"), verifier.Verify
	agent := engine.New(options)
	manager.add(agent)
	return func(ctx context.Context) error {
		ctx, cancel := context.WithCancel(ctx)
		var watching sync.WaitGroup
		defer watching.Wait()
		defer cancel()
		watching.Go(func() { source.Run(ctx) })
		return agent.Run(ctx)
	}, nil
}
