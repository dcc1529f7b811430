package cli

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/agent/config"
	"github.com/drover-dev/drover/agent/engine"
	"github.com/drover-dev/drover/agent/host"
	"github.com/drover-dev/drover/agent/host/systemd"
	"github.com/drover-dev/drover/agent/source/remote"
	"github.com/drover-dev/drover/agent/upgrade"
)

const (
	// packageMarker is a file of the deb and rpm packages of the agent; its line "program=" names the agent that belongs to the package.
	packageMarker = "/usr/lib/rancher-system-agent/packaged"
	unitDirectory = "/etc/systemd/system"
)

// newUpgrades returns what upgrades this agent when its hub asks for that. replace makes the process execute the installed binary.
func newUpgrades(cfg config.Config, source *remote.Source, options engine.Options, replace func()) (*upgrade.Manager, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding the path of this binary: %w", err)
	}
	return upgrade.New(upgrade.Options{
		Source: source, Host: options.Host, Log: options.Log, Gate: options.Gate, Version: Version, Arch: runtime.GOARCH,
		Program: program, Self: func() (io.ReadCloser, error) { return options.Host.Open("/proc/self/exe") },
		Unit: systemd.OwnUnit(), UnitDirectory: unitDirectory, PackageMarker: packageMarker, StateDirectory: cfg.StateDirectory,
		Timeout: time.Duration(cfg.UpgradeTimeout), Environment: systemd.InheritableEnvironment(options.Environment), Replace: replace,
	}), nil
}

// newRollback is what the timer of an upgrade runs, with the previous binary.
func newRollback() *cobra.Command {
	var state, units string
	cmd := &cobra.Command{
		Use:    upgrade.RollbackCommand,
		Short:  "Roll back an upgrade of the agent",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := requireRoot(readsAgentFiles); err != nil {
				return err
			}
			environment := systemd.InheritableEnvironment(os.Environ())
			return upgrade.Rollback(cmd.Context(), host.Local{}, state, units, environment)
		},
	}
	cmd.Flags().StringVar(&state, "state-directory", "", "stateDirectory of the agent's configuration")
	cmd.Flags().StringVar(&units, "unit-directory", unitDirectory, "directory of the rollback units")
	_ = cmd.MarkFlagRequired("state-directory")
	return cmd
}

// replacer returns a function that makes runAgent end and execute the installed binary.
func replacer(service *service, cancel func(), log *slog.Logger) func() {
	return func() {
		log.Info("Stopping to execute the installed binary")
		service.replaced.Store(true)
		cancel()
	}
}
