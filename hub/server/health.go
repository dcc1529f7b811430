package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
)

// addLiveness makes /healthz answer in every process: without any check it would be 404.
func addLiveness(mgr ctrl.Manager) error {
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return fmt.Errorf("adding health checks: %w", err)
	}
	return nil
}

// addHealthChecks makes /healthz and /readyz depend on the webhooks. That the gateway serves is checked by the listener.
func addHealthChecks(mgr ctrl.Manager) error {
	started := mgr.GetWebhookServer().StartedChecker()
	if err := errors.Join(mgr.AddHealthzCheck("webhook", started), mgr.AddReadyzCheck("webhook", started)); err != nil {
		return fmt.Errorf("adding health checks: %w", err)
	}
	return nil
}

// cacheCheck is ready once the manager has filled its caches. It stands for the gateway in a process without one.
type cacheCheck struct{ filled atomic.Bool }

func addCacheCheck(mgr ctrl.Manager) error {
	check := &cacheCheck{}
	if err := errors.Join(mgr.Add(check), mgr.AddReadyzCheck("caches", check.ready)); err != nil {
		return fmt.Errorf("adding health checks: %w", err)
	}
	return nil
}

// Start implements manager.Runnable. The manager calls it when its caches are filled.
func (c *cacheCheck) Start(ctx context.Context) error {
	c.filled.Store(true)
	<-ctx.Done()
	c.filled.Store(false)
	return nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: a replica that waits to lead is ready, too.
func (c *cacheCheck) NeedLeaderElection() bool { return false }

func (c *cacheCheck) ready(*http.Request) error {
	if !c.filled.Load() {
		return errors.New("the caches are not filled yet")
	}
	return nil
}
