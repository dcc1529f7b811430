package capi

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
)

const (
	// checkInterval is how often the certificate is compared with the clock. One timer for the day of the renewal would not do: it does not
	// count the time for which a virtual machine is suspended, nor a clock that was wrong when it was set.
	checkInterval = time.Hour
	// maxRetryPause is the longest pause before the Secret is read or written again after an error.
	maxRetryPause = 5 * time.Minute
)

// Start renews the certificate, or takes over what another replica has renewed, until ctx ends. It ends with an error, and the hub with it,
// as soon as there is another authority: the hub registers that when it starts again, as the other replicas do. Once a replica has done so,
// calls of the API server fail at those that still run.
func (c *Certificate) Start(ctx context.Context) error {
	changed, stop, err := c.watch(ctx)
	if err != nil {
		return err
	}
	defer stop()
	retryPause := newRetryPause()
	unread := true // for what has changed since the certificate was made
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-timer.C:
			if !unread && !c.renewalDue(c.now()) {
				timer.Reset(checkInterval)
				continue
			}
		}
		unread = true
		switch err := c.update(ctx); {
		case err == nil:
			unread, retryPause = false, newRetryPause()
			timer.Reset(checkInterval)
		case errors.Is(err, errOtherAuthority):
			return err
		case ctx.Err() == nil:
			ctrl.LoggerFrom(ctx).Error(err, "Updating the webhook certificate failed; retrying")
			timer.Reset(retryPause.Step())
		}
	}
}

func newRetryPause() *wait.Backoff {
	return &wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.1, Cap: maxRetryPause, Steps: math.MaxInt32}
}

// watch returns a channel that is sent to when the Secret has changed, until stop is called. Changes that come together are sent once.
func (c *Certificate) watch(ctx context.Context) (changed <-chan struct{}, stop func(), err error) {
	informer, err := c.secrets.GetInformer(ctx, &corev1.Secret{})
	if err != nil {
		return nil, nil, fmt.Errorf("watching Secrets: %w", err)
	}
	pending := make(chan struct{}, 1)
	notify := func(secret any) {
		if name, err := toolscache.DeletionHandlingObjectToName(secret); err != nil || name.AsNamespacedName() != c.name {
			return
		}
		select {
		case pending <- struct{}{}:
		default:
		}
	}
	registration, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: notify, UpdateFunc: func(_, secret any) { notify(secret) }, DeleteFunc: notify,
	})
	if err != nil {
		return nil, nil, fmt.Errorf("watching Secrets: %w", err)
	}
	return pending, func() { _ = informer.RemoveEventHandler(registration) }, nil
}
