package cli

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/drover-dev/drover/agent/config"
	"github.com/drover-dev/drover/agent/host"
	"github.com/drover-dev/drover/agent/source/remote"
	"github.com/drover-dev/drover/agent/trust"
)

// newSource makes the source of the hub's plans and what checks their signatures. The machine's identity is beside the configuration.
func newSource(cfg config.Config, path string, machine host.Host, log *slog.Logger) (*remote.Source, *trust.Verifier, error) {
	source, err := remote.New(cfg.ConnectionInfoFile, strings.EqualFold(os.Getenv(envStrict), "true"), log,
		remote.Rewrite(machine), remote.RegisterAgain(filepath.Dir(path)))
	if err != nil {
		return nil, nil, err
	}
	verifier, err := trust.New(trust.Options{
		Policy: cfg.PlanSignatures, Key: source.SigningKey, Host: machine, Log: log,
		Path: filepath.Join(cfg.StateDirectory, "accepted-signature"),
	})
	if err != nil {
		return nil, nil, err
	}
	log.Info("Plans of the hub are checked", "planSignatures", verifier.Policy())
	return source, verifier, nil
}
