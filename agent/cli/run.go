package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/agent/config"
	"github.com/drover-dev/drover/agent/engine"
	"github.com/drover-dev/drover/agent/host"
	"github.com/drover-dev/drover/agent/image"
	"github.com/drover-dev/drover/agent/source/remote"
)

// What the agent reads of its environment.
const (
	envConfig   = "CATTLE_AGENT_CONFIG"
	envLogLevel = "CATTLE_LOGLEVEL"
	envStrict   = "CATTLE_AGENT_STRICT_VERIFY"
)

// gcPercent keeps an agent that idles small; it has nothing to do for which collecting more often would matter.
const gcPercent = 40

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
	if !cfg.RemoteEnabled {
		return fmt.Errorf("configuration %s: localEnabled: plans from files are not supported yet", path)
	}
	if cfg.LocalEnabled {
		log.Warn("Plans from files are not supported yet, only those of the hub are applied")
	}
	debug.SetGCPercent(gcPercent)
	source, err := remote.New(cfg.ConnectionInfoFile, strings.EqualFold(os.Getenv(envStrict), "true"), log)
	if err != nil {
		return err
	}
	machine := host.Machine{}
	manager := newService(machine.Notify, host.WatchdogInterval(), log)
	agent := engine.New(engine.Options{
		Source: source, Host: manager.host(machine, "hub"), Log: log, Images: newStore(cfg, machine, log), Environment: forInstructions(os.Environ()),
		WorkDirectory: cfg.WorkDirectory, StateDirectory: cfg.StateDirectory, PreserveWorkDirectory: cfg.PreserveWorkDirectory,
		AppliedPlanDirectory: cfg.AppliedPlanDirectory, InterlockDirectory: cfg.InterlockDirectory,
		InstructionTimeout: time.Duration(cfg.InstructionTimeout), PeriodicTimeout: time.Duration(cfg.PeriodicTimeout),
	})
	manager.add(agent)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stopped := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() { manager.run(ctx, stopped) })
	watching.Go(func() { serveMetrics(ctx, cfg, manager.engines, log) })
	watching.Go(func() { source.Run(ctx) })

	log.Info("Agent started", "version", Version, "config", path)
	err = agent.Run(ctx)
	close(stopped)
	cancel()
	watching.Wait()
	if errors.Is(err, context.Canceled) {
		log.Info("Agent stopped")
		return nil
	}
	return err
}

func newStore(cfg config.Config, machine host.Host, log *slog.Logger) *image.Store {
	return image.New(image.Options{
		Host: machine, Log: log,
		CacheDirectory:  filepath.Join(cfg.StateDirectory, "layers"),
		ImagesDirectory: cfg.ImagesDirectory,
		RegistriesFiles: []string{cfg.AgentRegistriesFile, "/etc/rancher/rke2/registries.yaml", "/etc/rancher/k3s/registries.yaml"},
	})
}
