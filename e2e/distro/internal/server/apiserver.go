package server

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/drover-dev/drover/e2e/distro/internal/kubeconfig"
)

// startAPIServer starts kube-apiserver, if this server has one, and waits until it is ready.
func (s *server) startAPIServer(ctx context.Context) error {
	if !s.hasAPI() {
		return nil
	}
	if s.SecretsEncryption {
		if err := s.ensureEncryption(ctx); err != nil {
			return err
		}
	}
	if err := s.start(apiServer); err != nil {
		return err
	}
	var err error
	if s.admin, err = kubeconfig.Client(s.adminKubeconfig()); err != nil {
		return err
	}
	if err := s.waitAPI(ctx); err != nil {
		return err
	}
	s.apiAnswered.Store(true)
	return s.publishAddress(ctx)
}

// waitAPI waits until the API server says that it is ready.
func (s *server) waitAPI(ctx context.Context) error {
	began := time.Now()
	for n := 1; ; n++ {
		var code int
		err := s.admin.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).StatusCode(&code).Error()
		if err == nil && code == http.StatusOK {
			s.log.Info("The API server is ready", "seconds", time.Since(began).Seconds())
			return nil
		}
		if n%50 == 0 {
			s.log.Info("Waiting for the API server to be ready", "error", err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for the API server: %w", context.Cause(ctx))
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// startControllers starts the controller manager and the scheduler.
func (s *server) startControllers(context.Context) error {
	for _, name := range []string{controllerManager, scheduler} {
		if !s.runs(name) {
			continue
		}
		if err := s.start(name); err != nil {
			return err
		}
	}
	return nil
}
