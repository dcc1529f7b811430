package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/drover-dev/drover/e2e/scale/programs"
	"github.com/drover-dev/drover/hub/server/embedded"
)

// apiServer is the API server of several replicas, in a process of its own: beside thousands of agents in one process it would wait for
// its turn until replicas lose their Leases.
type apiServer struct {
	*programs.Program
	// kubeconfig is the file of the administrator, config what it says.
	kubeconfig string
	config     *rest.Config
}

// startAPI starts an API server, which logs into a file in dir, and waits until it is ready.
func startAPI(ctx context.Context, dir string) (*apiServer, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	data := filepath.Join(dir, "api")
	a := &apiServer{kubeconfig: filepath.Join(data, embedded.AdminKubeconfig)}
	if a.Program, err = programs.Start(dir, "api", nil, self, "apiserver", data); err != nil {
		return nil, err
	}
	err = a.Await(ctx, "the API server to be ready", func() error {
		config, api, err := administrator(a.kubeconfig)
		if err != nil {
			return err
		}
		a.config = config
		_, err = get(ctx, api, config.Host+"/readyz")
		return err
	})
	if err != nil {
		return nil, errors.Join(err, a.Stop())
	}
	return a, nil
}

// newAPICommand is the program of the API server.
func newAPICommand() *cobra.Command {
	return &cobra.Command{
		Use: "apiserver <directory>", Short: "Run an API server that keeps its data in a directory", Args: cobra.ExactArgs(1), Hidden: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			logger := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))
			embedded.RouteKubernetesLogs(logger)
			ctrl.SetLogger(logr.FromSlogHandler(logger.Handler()))
			server, err := embedded.Start(context.WithoutCancel(cmd.Context()), embedded.Options{DataDir: args[0], Logger: logger})
			if err != nil {
				return err
			}
			select {
			case <-cmd.Context().Done():
			case <-server.Done():
			}
			return server.Stop()
		},
	}
}
