package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/drover-dev/drover/e2e/balancer"
)

// startReplicas starts replicas of a hub behind a load balancer. Their API server is not measured.
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
		h.args = append(h.args, "--kubeconfig", api.kubeconfig, "--data-dir", a.dir, "--server-url", url,
			"--webhook-url", "https://"+webhook.Addr().String())
		if err := h.start(ctx); err != nil {
			return nil, err
		}
		started = append(started, h.Stop)
	}
	a.hubs = hubs
	if a.client, err = newClient(api.config); err != nil {
		return nil, err
	}
	a.identities = identities{client: a.client, url: url, caCerts: hubs[0].caCerts}
	return stop, nil
}
