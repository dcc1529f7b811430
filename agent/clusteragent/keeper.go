package clusteragent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/drover-dev/drover/agent/tunnel"
)

// retryRenewal is how long to wait at most after a renewal that failed; there are hours left for it.
const retryRenewal = 5 * time.Minute

// keeper keeps the agent's credential. Other pods of the cluster may do so at the same time: what one of them has got, all use.
type keeper struct {
	store   store
	hub     *hub
	cluster string
	log     *slog.Logger
	// turn is held by the one who asks the hub or the Kubernetes API.
	turn chan struct{}

	mu      sync.Mutex
	current identity
	// renewAt is RenewAfter of the current credential and something more, so that pods, and clusters, do not renew together.
	renewAt time.Time
	// refused is a credential that the hub does not take.
	refused string
}

// credential gives one that the hub should take. The error says what is missing.
func (k *keeper) credential(ctx context.Context) (string, error) {
	if credential := k.good(time.Now()); credential != "" {
		return credential, nil
	}
	select {
	case k.turn <- struct{}{}:
		defer func() { <-k.turn }()
	case <-ctx.Done():
		return "", ctx.Err()
	}
	if credential := k.good(time.Now()); credential != "" {
		return credential, nil
	}
	return k.obtain(ctx)
}

// good is the current credential, if it needs no renewal.
func (k *keeper) good(now time.Time) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.current.Credential == k.refused || !now.Before(k.renewAt) {
		return ""
	}
	return k.current.Credential
}

// refuse is told by the tunnel that the hub does not take a credential.
func (k *keeper) refuse(credential string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.refused = credential
}

// expires is when the current credential does, for metrics; zero where there is none.
func (k *keeper) expires() time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.current.ExpiresAt
}

// obtain looks for a credential where another pod may have left one, then renews the one that there is, then registers.
func (k *keeper) obtain(ctx context.Context) (string, error) {
	k.mu.Lock()
	agent := k.current.Agent
	k.mu.Unlock()
	secret, err := k.store.read(ctx, agent)
	if err != nil {
		if credential := k.still(time.Now()); credential != "" {
			k.log.Warn("The agent's credential cannot be renewed yet", "error", err)
			return credential, nil
		}
		return "", fmt.Errorf("reading the agent's identity from the Secret %s: %w", identitySecret, err)
	}
	if stored := decodeIdentity(secret); stored.Credential != "" || stored.Agent != agent {
		k.adopt(stored)
	}
	if credential := k.good(time.Now()); credential != "" {
		return credential, nil
	}
	k.mu.Lock()
	now, refused := k.current, k.refused
	k.mu.Unlock()
	if now.Credential != "" && now.Credential != refused {
		next, err := k.hub.exchange(ctx, now.Credential, now.Agent)
		if err == nil {
			return k.keep(ctx, secret, next, "renewed"), nil
		}
		if !isRefusal(err, http.StatusUnauthorized) {
			if credential := k.still(time.Now()); credential != "" {
				k.log.Warn("The agent's credential cannot be renewed yet", "error", err, "expiresAt", now.ExpiresAt)
				return credential, nil
			}
			return "", err
		}
		k.refuse(now.Credential)
		k.log.Warn("The hub does not take the agent's credential any more, so the agent registers again", "error", err)
	}
	return k.register(ctx, secret, now.Agent)
}

func (k *keeper) register(ctx context.Context, secret *corev1.Secret, agent string) (string, error) {
	token, err := k.hub.registrationToken()
	if err != nil {
		return "", err
	}
	if token == "" {
		return "", fmt.Errorf("there is no registration token in %s, and no credential that the hub takes: apply the cluster's manifest anew", k.hub.folder)
	}
	next, err := k.hub.exchange(ctx, token, agent)
	if isRefusal(err, http.StatusUnauthorized) {
		return "", fmt.Errorf("the registration token is not taken: apply the cluster's manifest anew, which holds a new one: %w", err)
	}
	if err != nil {
		return "", err
	}
	return k.keep(ctx, secret, next, "registered"), nil
}

// still is the current credential while it has not expired, though it should be renewed by now.
func (k *keeper) still(now time.Time) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.current.Credential == k.refused || !now.Before(k.current.ExpiresAt) {
		return ""
	}
	k.renewAt = now.Add(retryRenewal/2 + rand.N(retryRenewal/2))
	return k.current.Credential
}

// adopt takes what is stored.
func (k *keeper) adopt(next identity) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if next == k.current {
		return
	}
	k.current = next
	k.renewAt = next.RenewAfter
	if span := next.ExpiresAt.Sub(next.RenewAfter) / 8; span > 0 {
		k.renewAt = k.renewAt.Add(rand.N(span))
	}
}

// keep takes what the hub has given, and stores it for the other pods and the next one. An agent that cannot store it works on with it.
func (k *keeper) keep(ctx context.Context, secret *corev1.Secret, got answer, how string) string {
	k.mu.Lock()
	agent := k.current.Agent
	k.mu.Unlock()
	next := identity{Agent: agent, Credential: got.Credential, ExpiresAt: got.ExpiresAt, RenewAfter: got.RenewAfter}
	k.adopt(next)
	if k.cluster != "" && got.Cluster != k.cluster {
		k.log.Warn("The hub knows this cluster under another name than the agent was started with", "hub", got.Cluster, "CATTLE_CLUSTER", k.cluster)
	}
	err := k.store.write(ctx, secret, next)
	if apierrors.IsConflict(err) {
		// Another pod was faster. Its credential is as good for those to come.
		err = nil
	}
	if err != nil {
		k.log.Warn("The agent's credential could not be stored; a pod that comes needs the registration token", "secret", identitySecret, "error", err)
	}
	k.log.Info("The agent has a credential of its own", "how", how, "cluster", got.Cluster, "agent", got.Agent, "expiresAt", got.ExpiresAt)
	return next.Credential
}

// run renews the credential in time until ctx is done, also while the tunnel is up and nobody asks for it.
func (k *keeper) run(ctx context.Context) {
	for {
		wait := retryRenewal
		k.mu.Lock()
		if k.current.Credential != "" && k.current.Credential != k.refused {
			wait = max(time.Until(k.renewAt), time.Second)
		}
		k.mu.Unlock()
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		if k.expires().IsZero() {
			continue // the tunnel asks for the first one, and says why there is none
		}
		if _, err := k.credential(ctx); err != nil && ctx.Err() == nil {
			k.log.Warn("The agent's credential cannot be renewed", "error", err)
		}
	}
}

func isRefusal(err error, code int) bool {
	refusal := (*tunnel.Refusal)(nil)
	return errors.As(err, &refusal) && refusal.Code == code
}
