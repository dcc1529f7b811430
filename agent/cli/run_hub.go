package cli

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"github.com/google/go-containerregistry/pkg/authn"

	"github.com/drover-dev/drover/agent/config"
	"github.com/drover-dev/drover/agent/engine"
	"github.com/drover-dev/drover/agent/host"
	"github.com/drover-dev/drover/agent/host/systemd"
	"github.com/drover-dev/drover/agent/image"
	"github.com/drover-dev/drover/agent/source/remote"
	"github.com/drover-dev/drover/agent/trust"
)

// newHubEngine returns a function that applies the hub's plans, and upgrades the agent with replace, until its context is done. Without
// remoteEnabled the function only waits.
func newHubEngine(cfg config.Config, path string, options engine.Options, service *service, replace func()) (func(context.Context) error,
	error,
) {
	if !cfg.RemoteEnabled {
		return func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		}, nil
	}
	source, verifier, err := newSource(cfg, path, options.Host, options.Log)
	if err != nil {
		return nil, err
	}
	upgrades, err := newUpgrades(cfg, source, options, replace)
	if err != nil {
		return nil, err
	}
	options.Source, options.Notify, options.Verify = source, service.notifier(engine.HubName), verifier.Verify
	hub := engine.New(options)
	service.add(hub)
	service.upgrade = upgrades.Status
	return func(ctx context.Context) error {
		ctx, cancel := context.WithCancel(ctx)
		var watching sync.WaitGroup
		defer watching.Wait()
		defer cancel()
		watching.Go(func() { source.Run(ctx) })
		watching.Go(func() { upgrades.Run(ctx) })
		return hub.Run(ctx)
	}, nil
}

// newSource returns the source of the hub's plans and the verifier of their signatures. The machine's identity is in the directory of the
// configuration file at path.
func newSource(cfg config.Config, path string, machine host.Host, log *slog.Logger) (*remote.Source, *trust.Verifier, error) {
	source, err := remote.New(remote.Options{
		ConnectionFile: cfg.ConnectionInfoFile, Strict: isTrue(os.Getenv(envStrict)), Log: log,
		Host: machine, IdentityDirectory: filepath.Dir(path),
	})
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
	log.Info("Plan signatures", "policy", verifier.Policy())
	return source, verifier, nil
}

// newImageStore returns the store of installer images. Docker's credentials are used only if HOME is set.
func newImageStore(cfg config.Config, machine host.Host, log *slog.Logger) *image.Store {
	var keychain authn.Keychain
	if os.Getenv("HOME") != "" {
		keychain = authn.DefaultKeychain
	}
	return image.New(image.Options{
		Host: machine, Log: log,
		CacheDirectory:                 filepath.Join(cfg.ImageCacheDirectory, layersName),
		ImagesDirectory:                cfg.ImagesDirectory,
		RegistriesFiles:                cfg.RegistriesFiles(),
		CredentialProviderConfig:       cfg.ImageCredentialProviderConfig,
		CredentialProviderBinDirectory: cfg.ImageCredentialProviderBinDirectory,
		Environment:                    systemd.InheritableEnvironment(os.Environ()),
		Keychain:                       keychain,
		CacheBytes:                     cfg.ImageCacheBytes,
	})
}
