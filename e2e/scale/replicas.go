package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/drover-dev/drover/e2e/balancer"
	"github.com/drover-dev/drover/hub/server/embedded"
)

// startReplicas starts replicas of a hub behind a load balancer. Their API server is in this process, so that it is not measured.
func (a *agents) startReplicas(ctx context.Context) (_ func() error, err error) {
	var started []func() error
	stop := func() error {
		var errs []error
		for len(started) > 0 {
			last := len(started) - 1
			errs, started = append(errs, started[last]()), started[:last]
		}
		return errors.Join(errs...)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, stop())
		}
	}()
	api, err := startAPI(ctx, a.dir)
	if err != nil {
		return nil, err
	}
	started = append(started, api.Stop)
	var hubs []*hub
	var webhooks []*balancer.Backend
	for i := range a.replicas {
		h, err := newHub(a.hub, a.dir, fmt.Sprintf("hub-%d", i))
		if err != nil {
			return nil, err
		}
		hubs = append(hubs, h)
		webhooks = append(webhooks, &balancer.Backend{Address: h.webhook, Health: "http://" + h.health + "/readyz"})
	}
	if a.balancer, err = startBalancer(ctx, a.dir, hubs); err != nil {
		return nil, err
	}
	started = append(started, a.balancer.Stop)
	webhook, err := balancer.Start(ctx, webhooks...)
	if err != nil {
		return nil, err
	}
	url := "https://" + a.balancer.Address
	for _, h := range hubs {
		h.args = append(h.args, "--kubeconfig", api.Kubeconfig(), "--data-dir", a.dir, "--server-url", url,
			"--webhook-url", "https://"+webhook.Addr().String())
		if err := h.start(ctx); err != nil {
			return nil, err
		}
		started = append(started, h.Stop)
	}
	a.hubs = hubs
	if a.client, err = newClient(api.RestConfig()); err != nil {
		return nil, err
	}
	a.identities = identities{client: a.client, url: url, caCerts: hubs[0].caCerts}
	return stop, nil
}

// startAPI starts an API server in this process, which logs into a file in dir.
func startAPI(ctx context.Context, dir string) (*embedded.Server, error) {
	log, err := os.Create(filepath.Join(dir, "api.log"))
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { _ = log.Close() })
	logger := slog.New(slog.NewTextHandler(log, nil))
	embedded.RouteKubernetesLogs(logger)
	ctrl.SetLogger(logr.FromSlogHandler(logger.Handler()))
	return embedded.Start(context.WithoutCancel(ctx), embedded.Options{DataDir: filepath.Join(dir, "api"), Logger: logger})
}
