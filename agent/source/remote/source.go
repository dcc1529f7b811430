// Package remote takes plans from the plan Secret on the hub and reports there. It holds one watch on one Secret, writes with full
// updates only, and changes no key but the agent's. It applies nothing, and it never gives up because the hub is away.
package remote

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/drover-dev/drover/agent/config"
	"github.com/drover-dev/drover/agent/engine"
	"github.com/drover-dev/drover/plans"
)

const (
	// A watch lasts between these, so that a thousand agents do not come back at once.
	shortestWatch = 5 * time.Minute
	longestWatch  = 10 * time.Minute

	firstPause   = time.Second
	longestPause = time.Minute
)

// Source is an engine.Source. Run must run while it is used.
type Source struct {
	// connect makes a client of the connection info as it is on disk now, so that a new registration needs no restart.
	connect func() (*client, error)
	log     *slog.Logger
	updates chan engine.Snapshot

	mu     sync.Mutex
	client *client
	latest *corev1.Secret
}

var _ engine.Source = (*Source)(nil)

// New makes a source of a connection info file, which must be readable now.
func New(connectionFile string, strict bool, log *slog.Logger) (*Source, error) {
	s := &Source{log: log, updates: make(chan engine.Snapshot, 1)}
	s.connect = func() (*client, error) {
		connection, err := config.LoadConnection(connectionFile)
		if err != nil {
			return nil, err
		}
		return newClient(connection, strict)
	}
	var err error
	s.client, err = s.connect()
	return s, err
}

// Updates implements engine.Source.
func (s *Source) Updates() <-chan engine.Snapshot {
	return s.updates
}

// Run lists and watches until ctx is done. Whatever fails is tried again, after a pause that grows to a minute.
func (s *Source) Run(ctx context.Context) {
	for failures := 0; ctx.Err() == nil; {
		client := s.current()
		started := time.Now()
		err := s.follow(ctx, client)
		if ctx.Err() != nil {
			return
		}
		if err == nil || time.Since(started) > longestPause {
			failures = 0
		}
		if err == nil {
			continue
		}
		failures++
		pause := jitter(min(firstPause<<min(failures-1, 6), longestPause))
		s.log.Warn("The plan Secret cannot be watched", "error", explain(err), "retryIn", pause.Round(time.Millisecond))
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		s.reconnect()
	}
}

// follow lists the Secret and watches it to the end of one watch.
func (s *Source) follow(ctx context.Context, c *client) error {
	secret, version, err := c.list(ctx)
	if err != nil {
		return fmt.Errorf("listing: %w", err)
	}
	if secret == nil {
		s.log.Info("The plan Secret is not there yet", "namespace", c.namespace, "name", c.name)
	} else {
		s.publish(secret)
	}
	for {
		last := shortestWatch + rand.N(longestWatch-shortestWatch)
		version, err = s.watch(ctx, c, version, last)
		if err != nil || ctx.Err() != nil {
			return err
		}
	}
}

// watch follows one watch to its end and gives the version from which the next one goes on.
func (s *Source) watch(ctx context.Context, c *client, version string, last time.Duration) (string, error) {
	// A server that forgets to end the watch, or a connection that is dead, does not keep the agent deaf.
	ctx, cancel := context.WithTimeout(ctx, last+callTimeout)
	defer cancel()
	started := time.Now()
	w, err := c.watch(ctx, version, last)
	if err != nil {
		return version, fmt.Errorf("watching: %w", err)
	}
	defer w.Stop()
	for event := range w.ResultChan() {
		switch object := event.Object.(type) {
		case *corev1.Secret:
			version = object.ResourceVersion
			switch event.Type {
			case watch.Added, watch.Modified:
				s.publish(object)
			case watch.Deleted:
				s.log.Info("The plan Secret has been deleted", "namespace", c.namespace, "name", c.name)
			}
		default:
			// "Gone" among others: the next list starts over.
			return version, fmt.Errorf("watching: %w", apierrors.FromObject(event.Object))
		}
	}
	if time.Since(started) < time.Second {
		return version, errors.New("watching: the server ended the watch at once")
	}
	return version, nil
}

// publish gives the newest Secret to the engine, in place of one that it has not taken yet.
func (s *Source) publish(secret *corev1.Secret) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if secret.Name == "" {
		return
	}
	if s.latest != nil && s.latest.UID == secret.UID && s.latest.ResourceVersion == secret.ResourceVersion && len(s.updates) > 0 {
		return
	}
	s.latest = secret
	select {
	case <-s.updates:
	default:
	}
	s.updates <- s.snapshot(secret)
}

func (s *Source) snapshot(secret *corev1.Secret) engine.Snapshot {
	return engine.Snapshot{
		UID:       string(secret.UID),
		Delivery:  plans.DecodeDelivery(secret.Data),
		Status:    s.status(secret.Data),
		Interrupt: plans.DecodeInterrupt(secret.Annotations),
		Machine:   secret.Namespace + "/" + secret.Name,
	}
}

// status reads the agent's keys. One that holds nonsense counts as empty, and is replaced with the next report.
func (s *Source) status(data plans.SecretData) plans.Status {
	status, err := plans.DecodeStatus(data)
	if err == nil {
		return status
	}
	s.log.Warn("The plan Secret holds a report that cannot be read, it will be replaced", "error", err)
	readable := plans.SecretData{}
	for _, key := range plans.AgentKeys() {
		if _, err := plans.DecodeStatus(plans.SecretData{key: data[key]}); err == nil {
			readable[key] = data[key]
		}
	}
	status, _ = plans.DecodeStatus(readable)
	return status
}

// Get implements engine.Source.
func (s *Source) Get(ctx context.Context) (engine.Snapshot, error) {
	secret, err := s.get(ctx)
	if err != nil {
		return engine.Snapshot{}, err
	}
	return s.snapshot(secret), nil
}

func (s *Source) get(ctx context.Context) (*corev1.Secret, error) {
	secret, err := s.current().get(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading the plan Secret: %w", explain(err))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.latest = secret
	return secret, nil
}

func (s *Source) current() *client {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.client
}

// reconnect reads the connection info anew. Where that cannot be read, the client stays as it is.
func (s *Source) reconnect() {
	client, err := s.connect()
	if err != nil {
		s.log.Warn("The connection info cannot be read, going on with what was read before", "error", err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.client.namespace != client.namespace || s.client.name != client.name {
		s.latest = nil
	}
	s.client = client
}

func jitter(d time.Duration) time.Duration {
	return d - d/4 + rand.N(d/2)
}
