package lab

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/e2e/provider"
)

// StartProvider starts the infrastructure provider that makes hosts of this lab for Cluster API, unless it runs, and waits until it is
// healthy. Its kinds and its account are installed first.
func (l *Lab) StartProvider(ctx context.Context, hub client.Client) error {
	if !l.Running(providerProcess) {
		kubeconfig, err := l.installProvider(ctx, hub)
		if err != nil {
			return err
		}
		err = l.Start(providerProcess, []string{"DROVER_CACHE=" + l.cache}, l.bin("lab"), "--name", l.Name, "provider", "serve",
			"--kubeconfig", kubeconfig, "--listen", l.providerListen())
		if err != nil {
			return err
		}
	}
	return l.answers(ctx, providerProcess, "http://"+l.providerListen()+"/healthz")
}

func (l *Lab) installProvider(ctx context.Context, hub client.Client) (kubeconfig string, err error) {
	if err := provider.Install(ctx, hub); err != nil {
		return "", err
	}
	config, err := l.HubConfig()
	if err != nil {
		return "", err
	}
	raw, err := provider.Kubeconfig(ctx, hub, config)
	if err != nil {
		return "", err
	}
	kubeconfig = filepath.Join(l.Dir, "provider.kubeconfig")
	return kubeconfig, os.WriteFile(kubeconfig, raw, 0o600)
}

func (l *Lab) providerListen() string { return fmt.Sprintf("%s:%d", l.HubIP(), providerPort) }

// KillProvider ends the infrastructure provider as a power cut does.
func (l *Lab) KillProvider() error { return l.Stop(providerProcess, 0) }
