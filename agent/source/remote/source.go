// Package remote takes plans from the plan Secret on the hub and reports there. It holds one watch on one Secret, writes with full
// updates only, and changes no key but the agent's. It applies nothing, and it retries for as long as the hub is unreachable.
package remote

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drover-dev/drover/agent/host"
	"github.com/drover-dev/drover/agent/retry"
	"github.com/drover-dev/drover/agent/source"
	"github.com/drover-dev/drover/plans"
)

const (
	baseDelay = time.Second
	maxDelay  = time.Minute
	// maxRefusedDelay is the longest delay while nothing listens at the hub's address, as while a hub restarts: that costs the hub nothing.
	maxRefusedDelay = 15 * time.Second
	// listensAgain is what the first failure after those counts for at most.
	listensAgain = 3
	// maxReconnects is after how many failures in a row a replaced connection is no longer tried at once.
	maxReconnects = 5
)

// Options of a Source. ConnectionFile and Log are required.
type Options struct {
	// ConnectionFile is the path of the connection info. It is read again with each connection, so that a new registration needs no restart.
	ConnectionFile string
	// Fixed says that nobody replaces the connection info while the Source runs, so that it is not watched.
	Fixed bool
	// Strict refuses connection info without certificate authorities.
	Strict bool
	// Log receives warnings about connections, and what was registered or replaced.
	Log *slog.Logger
	// Host writes the connection info when the hub's certificate authorities or the machine's token change; nil never writes it.
	Host host.Host
	// IdentityDirectory holds the machine's identity, with which it registers again when the hub refuses its token; empty, or without
	// Host, it never does.
	IdentityDirectory string
	// Dial connects to the hub, as net.Dialer.DialContext does, which is the default.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Source is a source.Source. Run must run while it is used.
type Source struct {
	Options
	updates chan source.Snapshot
	// replaced is signalled when the connection info has been replaced, unauthorized when the hub has refused the token in a request
	// beside the watch.
	replaced, unauthorized chan struct{}
	// upgrades is signaled when the Secret was read with another agent-upgrade than before, and after the first read.
	upgrades chan struct{}
	// watchSilence is for how long a hub that sends bookmarks may send nothing, baseDelay the delay after the first failure.
	watchSilence, baseDelay time.Duration

	// authorities, registrations and bookmarks belong to Run. bookmarks is set once the hub has sent one.
	authorities   authoritiesState
	registrations registrationState
	bookmarks     bool

	mu     sync.Mutex
	client *client
	// latest is the Secret as it was last read or written; nil before.
	latest *corev1.Secret
	// published is the version of the last snapshot in updates, which the engine may have taken.
	published secretVersion
	// problem is why the hub does not answer, since when; empty while it does and before the first attempt.
	problem      string
	problemSince time.Time
	connections  source.Connections
}

// secretVersion identifies a version of the plan Secret.
type secretVersion struct {
	uid             types.UID
	resourceVersion string
}

var (
	_ source.Source            = (*Source)(nil)
	_ source.Reachability      = (*Source)(nil)
	_ source.ConnectionCounter = (*Source)(nil)
)

// New makes a source. The connection info must be valid now.
func New(options Options) (*Source, error) {
	s := &Source{Options: options, watchSilence: maxWatchSilence, baseDelay: baseDelay,
		updates: make(chan source.Snapshot, 1), replaced: make(chan struct{}, 1), unauthorized: make(chan struct{}, 1),
		upgrades: make(chan struct{}, 1)}
	var err error
	s.client, err = s.connect()
	return s, err
}

// SigningKey returns the key that plans must be signed with, or nil where the connection info has none.
func (s *Source) SigningKey() (ed25519.PublicKey, error) {
	return s.current().connection.SigningKey()
}

// Updates implements source.Source.
func (s *Source) Updates() <-chan source.Snapshot { return s.updates }

// Unreachable implements source.Reachability.
func (s *Source) Unreachable() (reason string, since time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.problem, s.problemSince
}

// Connections implements source.ConnectionCounter.
func (s *Source) Connections() source.Connections {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.connections
}

// count increments one of the counters of s.connections.
func (s *Source) count(counter *int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*counter++
}

// Run lists and watches until ctx is done. Failures are retried after a delay that grows to a minute, or that the hub asks for.
func (s *Source) Run(ctx context.Context) {
	var watching sync.WaitGroup
	if !s.Fixed {
		watching.Go(func() { s.watchConnectionFile(ctx) })
	}
	defer watching.Wait()
	for failed := (failures{}); ctx.Err() == nil; {
		client := s.current()
		started := time.Now()
		err := s.listAndWatch(ctx, client)
		if ctx.Err() != nil {
			return
		}
		if err == nil || time.Since(started) > maxDelay {
			failed = failures{}
		}
		if err == nil {
			continue
		}
		failed.add(err)
		if !errors.Is(err, errReplaced) || failed.count > maxReconnects {
			if !s.recovered(ctx, client, err, failed.count) {
				select {
				case <-ctx.Done():
					return
				case <-s.replaced:
				case <-time.After(s.delay(client, failed.count, err)):
				}
			}
		}
		s.reconnect()
	}
}

// failures counts failures in a row. The zero value is none.
type failures struct {
	count int
	// refused is whether nothing listened at the hub's address at the last.
	refused bool
}

// add counts a failure. While nothing listened at the hub's address, nobody was kept waiting: one that listens again, and that all agents
// come back to at the same time, is asked again soon, and then less and less often.
func (f *failures) add(err error) {
	refused := errors.Is(err, syscall.ECONNREFUSED)
	if f.count++; f.refused && !refused {
		f.count = min(f.count, listensAgain)
	}
	f.refused = refused
}

// delay returns how long to wait after a number of failures, of which err is the last: at least as long as the hub asks for, and not until
// the same moment on all machines.
func (s *Source) delay(c *client, failures int, err error) time.Duration {
	limit := maxDelay
	if errors.Is(err, syscall.ECONNREFUSED) {
		limit = maxRefusedDelay
	}
	delay := retry.Delay(failures, s.baseDelay, limit)
	if wait := c.transport.notBefore.Wait(); wait > 0 {
		return max(delay, wait+rand.N(wait/4+time.Millisecond))
	}
	return delay
}

// recovered does what the agent itself can do about an error, and reports what it cannot. It returns true if there is a new connection to
// try at once.
func (s *Source) recovered(ctx context.Context, c *client, err error, failures int) bool {
	var cause error
	explained := explain(err)
	switch {
	case isUnknownAuthority(err):
		if cause = s.recoverAuthorities(ctx, c); cause != nil && !errors.Is(cause, errReplaced) {
			explained = fmt.Errorf("the hub's certificate is not signed by the CA of the connection info, nor by one that this CA has signed (%w); "+
				"if the hub has a new CA, run the install script again with its checksum: %w", cause, err)
		}
	case isRefused(err):
		if cause = s.register(ctx, c); cause != nil && !errors.Is(cause, errReplaced) {
			explained = fmt.Errorf("the hub refuses this machine's token; registering again: %w; the hub said: %w", cause, err)
		}
	case isExpired(err):
		explained = fmt.Errorf("the hub's certificate is not valid at this machine's time; %w: %w", compareClocks(ctx, c), err)
	}
	if ctx.Err() != nil {
		return false
	}
	s.setProblem(explained)
	if errors.Is(cause, errReplaced) && failures < maxReconnects {
		return true
	}
	s.Log.Warn("Watching the plan Secret failed", "error", explained)
	return false
}

// setProblem notes why the hub does not answer, or with nil that it does. The time stays that of the first failure in a row.
func (s *Source) setProblem(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		s.problem, s.problemSince = "", time.Time{}
		return
	}
	s.connections.Reconnects++
	if s.problem == "" {
		s.problemSince = time.Now()
	}
	s.problem = err.Error()
}

// signal sends without waiting; a signal that was not received yet is enough.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// publish replaces a snapshot that the engine has not taken yet, unless it is of the same version. What was read or written beside the
// watch says nothing about that: the engine may still have an older one to take.
func (s *Source) publish(secret *corev1.Secret) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.noteLocked(secret)
	version := secretVersion{secret.UID, secret.ResourceVersion}
	if s.published == version && len(s.updates) > 0 {
		return
	}
	s.published = version
	select {
	case <-s.updates:
	default:
	}
	s.updates <- s.snapshot(secret)
}

// noteLocked remembers the Secret as it was read or written. An upgrade may be read here first, before the watch delivers it.
func (s *Source) noteLocked(secret *corev1.Secret) {
	if s.latest == nil || !bytes.Equal(s.latest.Data[plans.KeyAgentUpgrade], secret.Data[plans.KeyAgentUpgrade]) {
		signal(s.upgrades)
	}
	s.latest = secret
}

// noteBesideLocked remembers the Secret as it was read or written beside the watch, unless the watch has delivered a later version before
// the response came: an update of the earlier one may change nothing, and then nobody would find out that it is outdated.
func (s *Source) noteBesideLocked(secret *corev1.Secret) {
	if s.latest == nil || s.latest.UID != secret.UID || !isLater(s.latest.ResourceVersion, secret.ResourceVersion) {
		s.noteLocked(secret)
	}
}

// isLater compares resource versions, which are numbers as a rule. Of others none is later.
func isLater(version, than string) bool {
	a, errA := strconv.ParseUint(version, 10, 64)
	b, errB := strconv.ParseUint(than, 10, 64)
	return errA == nil && errB == nil && a > b
}

// snapshot decodes a Secret of a client, which has its name and namespace: see client.isOwn.
func (s *Source) snapshot(secret *corev1.Secret) source.Snapshot {
	return source.Snapshot{
		UID:       string(secret.UID),
		Delivery:  plans.DecodeDelivery(secret.Data),
		Status:    s.decodeStatus(secret.Data),
		Interrupt: plans.DecodeInterrupt(secret.Annotations),
		Machine:   secret.Namespace + "/" + secret.Name,
	}
}

// decodeStatus decodes the agent's keys. One that cannot be decoded counts as empty, and is replaced with the next report.
func (s *Source) decodeStatus(data plans.SecretData) plans.Status {
	status, err := plans.DecodeStatus(data)
	if err != nil {
		s.Log.Warn("Decoding the report in the plan Secret failed, it will be replaced", "error", err)
	}
	return status
}

// Get implements source.Source.
func (s *Source) Get(ctx context.Context) (source.Snapshot, error) {
	secret, err := s.get(ctx)
	if err != nil {
		return source.Snapshot{}, err
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
	s.noteBesideLocked(secret)
	return secret, nil
}

// notice tells Run about a refused token: with some hubs a watch that was started before goes on for minutes.
func (s *Source) notice(err error) {
	if apierrors.IsUnauthorized(err) {
		signal(s.unauthorized)
	}
}

func (s *Source) current() *client {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.client
}
