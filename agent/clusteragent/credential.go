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

	"github.com/drover-dev/drover/agent/registration"
	"github.com/drover-dev/drover/agent/retry"
)

const (
	// minRenewalDelay is the time until a failed renewal of an expired credential is retried; it doubles with each failure.
	minRenewalDelay = 5 * time.Second
	// maxRenewalDelay bounds that, but for jitter. It is also used for a credential that has not expired, since such a credential is valid
	// for hours after it should be renewed.
	maxRenewalDelay = 5 * time.Minute
)

// credentialManager obtains, renews and stores the agent's credential. The pods of a cluster share it: a pod uses what another one has
// stored.
type credentialManager struct {
	store   identityStore
	hub     *hubClient
	cluster string
	log     *slog.Logger
	// obtaining has capacity 1 and is held during requests to the hub and the Kubernetes API.
	obtaining chan struct{}

	mu      sync.Mutex
	current identity
	// renewAt is RenewAfter of current plus jitter, so that pods and clusters do not renew together.
	renewAt time.Time
	// refused is a credential for which the hub returned 401. It is not shown again while the registration token may be good.
	refused string
}

func newCredentialManager(store identityStore, hub *hubClient, cluster string, log *slog.Logger) *credentialManager {
	return &credentialManager{store: store, hub: hub, cluster: cluster, log: log, obtaining: make(chan struct{}, 1)}
}

// credential returns a credential that the hub is expected to accept.
func (m *credentialManager) credential(ctx context.Context) (string, error) {
	if credential := m.valid(time.Now()); credential != "" {
		return credential, nil
	}
	select {
	case m.obtaining <- struct{}{}:
		defer func() { <-m.obtaining }()
	case <-ctx.Done():
		return "", ctx.Err()
	}
	if credential := m.valid(time.Now()); credential != "" {
		return credential, nil
	}
	return m.obtain(ctx)
}

// valid returns the current credential if it is not due for renewal.
func (m *credentialManager) valid(now time.Time) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.current.Credential == m.refused || !now.Before(m.renewAt) {
		return ""
	}
	return m.current.Credential
}

// unexpired returns the current credential if it has not expired, and postpones its renewal, which has failed with err, at least as long as
// the hub asks for, but not beyond the expiry.
func (m *credentialManager) unexpired(now time.Time, err error) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.current.Credential == m.refused || !now.Before(m.current.ExpiresAt) {
		return ""
	}
	m.renewAt = now.Add(max(maxRenewalDelay/2+rand.N(maxRenewalDelay/2), retryAfter(err)))
	if m.renewAt.After(m.current.ExpiresAt) {
		m.renewAt = m.current.ExpiresAt
	}
	return m.current.Credential
}

// setRefused records a credential that the hub does not accept; the tunnel calls it, too.
func (m *credentialManager) setRefused(credential string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.refused = credential
}

// showAgain lets the current credential be shown to the hub again, where there is no other way to get one. The hub may have refused it
// while its clock or that of this machine was wrong, or another hub may have answered at its address. With a registration token that has
// expired or was deleted, the agent would not come back otherwise.
func (m *credentialManager) showAgain() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.refused = ""
}

// isDue reports whether the current credential should be renewed.
func (m *credentialManager) isDue() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return !time.Now().Before(m.renewAt)
}

// expiresAt is the expiry of the current credential; zero if there is none.
func (m *credentialManager) expiresAt() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.current.ExpiresAt
}

// obtain uses the credential that another pod has stored, otherwise renews the current one, otherwise registers.
func (m *credentialManager) obtain(ctx context.Context) (string, error) {
	m.mu.Lock()
	agent := m.current.Agent
	m.mu.Unlock()
	secret, err := m.store.read(ctx, agent)
	if err != nil {
		if credential := m.unexpired(time.Now(), err); credential != "" {
			m.log.Warn("Renewing the agent's credential failed; using the current one", "error", err)
			return credential, nil
		}
		return "", fmt.Errorf("reading the agent's identity from Secret %s: %w", identitySecret, err)
	}
	if stored := decodeIdentity(secret); m.supersedes(stored) {
		m.set(stored)
	}
	if credential := m.valid(time.Now()); credential != "" {
		return credential, nil
	}
	m.mu.Lock()
	current, refused := m.current, m.refused
	m.mu.Unlock()
	if current.Credential != "" && current.Credential != refused {
		next, err := m.hub.exchange(ctx, current.Credential, current.Agent)
		if err == nil {
			return m.save(ctx, secret, next, "Agent's credential renewed"), nil
		}
		if !isUnauthorized(err) {
			if credential := m.unexpired(time.Now(), err); credential != "" {
				m.log.Warn("Renewing the agent's credential failed; using the current one", "error", err, "expiresAt", current.ExpiresAt)
				return credential, nil
			}
			return "", err
		}
		m.setRefused(current.Credential)
		m.log.Warn("The hub refuses the agent's credential; registering again", "error", err)
	}
	return m.register(ctx, secret, current.Agent)
}

func (m *credentialManager) register(ctx context.Context, secret *corev1.Secret, agent string) (string, error) {
	token, err := m.hub.registrationToken()
	if err != nil {
		return "", err
	}
	if token == "" {
		m.showAgain()
		return "", fmt.Errorf(
			"no registration token in %s, and no credential that the hub accepts: apply the cluster's manifest again", m.hub.directory)
	}
	next, err := m.hub.exchange(ctx, token, agent)
	if isUnauthorized(err) {
		m.showAgain()
		return "", fmt.Errorf(
			"the hub refuses the registration token: apply the cluster's manifest again, which contains the current one: %w", err)
	}
	if err != nil {
		return "", err
	}
	return m.save(ctx, secret, next, "Cluster agent registered"), nil
}

// supersedes reports whether to use a stored identity instead of the current one. A pod that could not store its credential has a newer one
// than the Secret.
func (m *credentialManager) supersedes(stored identity) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if stored.Agent != m.current.Agent {
		return true
	}
	return stored.Credential != "" && (stored.RenewAfter.After(m.current.RenewAfter) || m.current.Credential == m.refused)
}

// set makes an identity the current one.
func (m *credentialManager) set(next identity) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if next == m.current {
		return
	}
	m.current = next
	m.renewAt = next.RenewAfter
	if jitter := next.ExpiresAt.Sub(next.RenewAfter) / 8; jitter > 0 {
		m.renewAt = m.renewAt.Add(rand.N(jitter))
	}
}

// save makes a credential of the hub the current one and stores it for the other pods. A pod that cannot store it still uses it.
func (m *credentialManager) save(ctx context.Context, secret *corev1.Secret, got credentialResponse, message string) string {
	m.mu.Lock()
	agent := m.current.Agent
	m.mu.Unlock()
	next := identity{Agent: agent, Credential: got.Credential, ExpiresAt: got.ExpiresAt, RenewAfter: got.RenewAfter}
	m.set(next)
	if m.cluster != "" && got.Cluster != m.cluster {
		m.log.Warn("The hub has another name for this cluster than CATTLE_CLUSTER", "hub", got.Cluster, "CATTLE_CLUSTER", m.cluster)
	}
	// On a conflict another pod was faster, and has stored a credential that is as good.
	if err := m.store.write(ctx, secret, next); err != nil && !apierrors.IsConflict(err) {
		m.log.Warn("Storing the agent's credential failed; the next pod needs the registration token", "secret", identitySecret, "error", err)
	}
	m.log.Info(message, "cluster", got.Cluster, "agent", got.Agent, "expiresAt", got.ExpiresAt)
	return next.Credential
}

// run renews the credential before it expires until ctx is done, even if the tunnel does not ask for it. Failures in a row are retried
// after a growing delay: all agents whose credentials have expired ask the same hub.
func (m *credentialManager) run(ctx context.Context) {
	failures, delay := 0, time.Duration(0)
	for {
		wait := maxRenewalDelay
		m.mu.Lock()
		if m.current.Credential != "" && m.current.Credential != m.refused {
			// No longer than maxRenewalDelay: the clock may be set meanwhile, or the machine be suspended.
			wait = min(max(time.Until(m.renewAt), time.Second), maxRenewalDelay)
		}
		m.mu.Unlock()
		if retry.Sleep(ctx, max(wait, delay)) != nil {
			return
		}
		if m.expiresAt().IsZero() {
			continue // the tunnel obtains the first one and logs why there is none
		}
		_, err := m.credential(ctx)
		if err == nil {
			failures, delay = 0, 0
			if m.isDue() {
				delay = maxRenewalDelay // the clock of this machine is hours ahead of the hub's
			}
			continue
		}
		failures++
		delay = renewalDelay(failures, err)
		if ctx.Err() == nil {
			m.log.Warn("Renewing the agent's credential failed", "error", err, "retryIn", delay.Round(time.Millisecond))
		}
	}
}

// renewalDelay is the delay after a number of failures in a row, of which err is the last: at least as long as the hub asks for.
func renewalDelay(failures int, err error) time.Duration {
	return max(retry.Delay(failures, minRenewalDelay, maxRenewalDelay), retryAfter(err))
}

// retryAfter returns how long the hub asks to wait, and up to a quarter more, so that not all agents come back at once; 0 if it does not.
func retryAfter(err error) time.Duration {
	status := (*registration.StatusError)(nil)
	if !errors.As(err, &status) || status.RetryAfter <= 0 {
		return 0
	}
	return status.RetryAfter + rand.N(status.RetryAfter/4+time.Millisecond)
}

func isUnauthorized(err error) bool {
	status := (*registration.StatusError)(nil)
	return errors.As(err, &status) && status.Code == http.StatusUnauthorized
}
