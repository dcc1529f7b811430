// Package remote takes plans from the plan Secret on the hub and reports there. It holds one watch on one Secret, writes with full
// updates only, and changes no key but the agent's. It applies nothing, and it never gives up because the hub is away.
package remote

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/drover-dev/drover/agent/config"
	"github.com/drover-dev/drover/agent/engine"
	"github.com/drover-dev/drover/agent/host"
	"github.com/drover-dev/drover/plans"
)

const (
	// A watch lasts between these, so that a thousand agents do not come back at once.
	shortestWatch = 5 * time.Minute
	longestWatch  = 10 * time.Minute

	firstPause   = time.Second
	longestPause = time.Minute

	// longestSilence is more than two bookmarks take.
	longestSilence = 150 * time.Second
	// maxReplaced is after how many new connections in a row that do not help the agent waits between them.
	maxReplaced = 5
)

// errAnew ends a watch that is to be begun anew.
var errAnew = errors.New("watching: a request beside the watch was refused")

// Source is an engine.Source. Run must run while it is used.
type Source struct {
	// file is the connection info. It is read with each connection, so that a new registration needs no restart.
	file   string
	strict bool
	log    *slog.Logger
	// host writes the connection info; nil where it is never to be written. identity is the folder with the machine's identity.
	host     host.Host
	identity string
	// silence is for how long a hub that sends bookmarks may send nothing.
	silence time.Duration
	updates chan engine.Snapshot
	// replaced tells that the connection info seems to be another, refused that the hub has refused the token beside the watch.
	replaced, refused chan struct{}
	counters          counters

	// rotation, attempts and bookmarks belong to Run.
	rotation  rotation
	attempts  attempts
	bookmarks bool

	mu        sync.Mutex
	client    *client
	latest    *corev1.Secret
	condition Condition
}

var _ engine.Source = (*Source)(nil)

// Option adds to what a Source does.
type Option func(*Source)

// Rewrite lets the source replace the connection info when the hub's certificate authorities change.
func Rewrite(h host.Host) Option {
	return func(s *Source) { s.host = h }
}

// RegisterAgain lets the source, with Rewrite, ask for a new connection when the hub refuses its token. The folder holds the machine's
// identity.
func RegisterAgain(dir string) Option {
	return func(s *Source) { s.identity = dir }
}

// New makes a source of a connection info file, which must be readable now.
func New(connectionFile string, strict bool, log *slog.Logger, options ...Option) (*Source, error) {
	s := &Source{file: connectionFile, strict: strict, log: log, silence: longestSilence,
		updates: make(chan engine.Snapshot, 1), replaced: make(chan struct{}, 1), refused: make(chan struct{}, 1)}
	for _, option := range options {
		option(s)
	}
	var err error
	s.client, err = s.connect()
	return s, err
}

// connect makes a client of the connection info as it is on disk now.
func (s *Source) connect() (*client, error) {
	connection, raw, err := config.ReadConnection(s.file)
	if err != nil {
		return nil, err
	}
	return newClient(connection, raw, s.strict)
}

// SigningKey is the key that plans must be signed with, or nil where the connection info names none.
func (s *Source) SigningKey() (ed25519.PublicKey, error) {
	return s.current().connection.SigningKey()
}

// Updates implements engine.Source.
func (s *Source) Updates() <-chan engine.Snapshot {
	return s.updates
}

// Run lists and watches until ctx is done. Whatever fails is tried again, after a pause that grows to a minute.
func (s *Source) Run(ctx context.Context) {
	defer s.watchFile()()
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
		if errors.Is(err, errReplaced) && failures < maxReplaced {
			failures++
			s.reconnect()
			continue
		}
		failures++
		if s.mended(ctx, client, err, failures) {
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-s.replaced:
		case <-time.After(s.pause(client, failures)):
		}
		s.reconnect()
	}
}

// pause is how long to wait after so many failures: as long as the hub asks for, but not less than seems wise.
func (s *Source) pause(c *client, failures int) time.Duration {
	pause := jitter(min(firstPause<<min(failures-1, 6), longestPause))
	if wait := c.transport.patience(); wait > 0 {
		// Not sooner than the hub wants, and not all machines at the same moment.
		return max(pause, wait+rand.N(wait/4+time.Millisecond))
	}
	return pause
}

// mended does what the agent itself can do about an error, tells people what it cannot, and returns true when there is a new connection to
// try at once.
func (s *Source) mended(ctx context.Context, c *client, err error, failures int) bool {
	cause, explained := error(nil), explain(err)
	switch {
	case isForeign(err):
		if cause = s.recoverAuthorities(ctx, c); cause != nil && !errors.Is(cause, errReplaced) {
			explained = fmt.Errorf("the hub's certificate is not signed by the CA of the connection info, and no way leads there from it (%w); "+
				"if the hub has a new CA, run the install script again with its checksum: %w", cause, err)
		}
	case isRefused(err):
		if cause = s.register(ctx, c); cause != nil && !errors.Is(cause, errReplaced) {
			explained = fmt.Errorf("the hub refuses this machine's token; registering again: %w; the hub said: %w", cause, err)
		}
	case isOutOfTime(err):
		explained = fmt.Errorf("the hub's certificate is not valid at this machine's time; %w: %w", compareClocks(ctx, c), err)
	}
	if ctx.Err() != nil {
		return false
	}
	s.failed(explained)
	if errors.Is(cause, errReplaced) && failures < maxReplaced {
		s.reconnect()
		return true
	}
	s.log.Warn("The plan Secret cannot be watched", "error", explained)
	return false
}

// wake leaves a message for Run.
func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
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
		s.notice(err)
		return nil, fmt.Errorf("reading the plan Secret: %w", explain(err))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.latest = secret
	return secret, nil
}

// notice lets Run look after a token that is refused: a watch that was begun before goes on for minutes with some hubs.
func (s *Source) notice(err error) {
	if apierrors.IsUnauthorized(err) {
		wake(s.refused)
	}
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
