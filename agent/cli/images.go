package cli

import (
	"log/slog"
	"os"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/authn"

	"github.com/drover-dev/drover/agent/config"
	"github.com/drover-dev/drover/agent/host"
	"github.com/drover-dev/drover/agent/image"
)

// newStore makes the store of images. Docker's configuration gives credentials only where HOME says whose it is.
func newStore(cfg config.Config, machine host.Host, log *slog.Logger) *image.Store {
	var keychain authn.Keychain
	if os.Getenv("HOME") != "" {
		keychain = authn.DefaultKeychain
	}
	retention := image.DefaultRetention
	if cfg.ImageCacheBytes > 0 {
		retention.Bytes = cfg.ImageCacheBytes
	}
	return image.New(image.Options{
		Host: machine, Log: log,
		CacheDirectory:                 filepath.Join(cfg.StateDirectory, "layers"),
		ImagesDirectory:                cfg.ImagesDirectory,
		RegistriesFiles:                []string{cfg.AgentRegistriesFile, "/etc/rancher/rke2/registries.yaml", "/etc/rancher/k3s/registries.yaml"},
		CredentialProviderConfig:       cfg.ImageCredentialProviderConfig,
		CredentialProviderBinDirectory: cfg.ImageCredentialProviderBinDirectory,
		Environment:                    forInstructions(os.Environ()),
		Keychain:                       keychain,
		Retention:                      retention,
	})
}
