package tunnel

import (
	"context"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/gorilla/websocket"
	"github.com/prometheus/client_golang/prometheus"
)

// The headers by which an agent learns which replica of the hub it has reached, and how many there are, so that it can hold sessions to two
// of them.
const (
	ReplicaHeader  = "X-Drover-Replica"
	ReplicasHeader = "X-Drover-Replicas"
	// HeldHeader is how an agent that looks for a second replica tells which ones it has sessions to, separated by commas.
	HeldHeader = "X-Drover-Held-Replicas"
)

// Options say how a Manager works. All fields may be left out.
type Options struct {
	Logger     logr.Logger
	Registerer prometheus.Registerer
	// ReplicaID is what agents are told about which replica this is.
	ReplicaID string
	// Replicas tells how many replicas there are; nil means one.
	Replicas func() int
	Limits   Limits
}

// Agent is who holds a session.
type Agent struct {
	// Key is what the session is found by: a management cluster, or one of its machines.
	Key string
	// Identity is the TunnelAgent, as namespace/name, or the ServiceAccount of a machine, as serviceaccount/namespace/name; empty where the
	// agent has neither.
	Identity string
	// Legacy is how the API of the cluster of a legacy agent is reached; nil for an agent of Drover.
	Legacy *LegacyCluster
}

// LegacyCluster is the API server of a cluster whose agent leaves authentication to the hub. It is kept in memory only and never logged.
type LegacyCluster struct {
	Address string
	Token   string
	CACert  []byte
}

// Manager holds the sessions of this replica. It needs no start: what it runs lives as long as there are sessions.
type Manager struct {
	opts    Options
	limits  Limits
	log     logr.Logger
	metrics *metrics
	// used is the memory of all sessions' received bytes.
	used atomic.Int64
	// syncAge is the constant of that name, but in tests.
	syncAge time.Duration

	mu sync.RWMutex
	// keys are the sessions of each key, the newest last.
	keys     map[string][]*session
	total    int
	watched  bool
	draining bool
	changed  []func(key string)
}

// New makes a Manager.
func New(opts Options) *Manager {
	m := &Manager{opts: opts, limits: opts.Limits.withDefaults(), log: opts.Logger, syncAge: syncAge, keys: map[string][]*session{}}
	m.metrics = newMetrics(m, opts.Registerer)
	return m
}

// OnChange has f called when the first session of a key has come, or the last has gone. It is called without locks and must not block.
// Calls for two changes in quick succession may come in either order, so that f asks Connected. All calls of OnChange come before the first
// of Serve.
func (m *Manager) OnChange(f func(key string)) { m.changed = append(m.changed, f) }

// Serve makes the request a session of agent, which the caller has authenticated, and returns when that has ended.
func (m *Manager) Serve(w http.ResponseWriter, r *http.Request, agent Agent) {
	if m.isDraining() {
		w.Header().Set("Retry-After", "1")
		http.Error(w, "this replica of the hub is about to stop", http.StatusServiceUnavailable)
		return
	}
	if m.isHeld(r, agent.Key) {
		maps.Copy(w.Header(), m.replicaHeaders())
		http.Error(w, "the agent has a session to this replica of the hub", http.StatusConflict)
		return
	}
	hijacked := &hijacker{ResponseWriter: w, received: m.metrics.received}
	upgrader := websocket.Upgrader{
		HandshakeTimeout: 10 * time.Second,
		// Agents are no browsers: they prove who they are with a header that no web page can make a browser send.
		CheckOrigin: func(*http.Request) bool { return true },
		// With a pool the connection has no write buffer; a session writes past it.
		WriteBufferPool: &sync.Pool{},
	}
	ws, err := upgrader.Upgrade(hijacked, r, m.replicaHeaders())
	if err != nil {
		m.log.Info("An agent's request did not become a tunnel", "key", agent.Key, "err", err.Error())
		return
	}
	s := newSession(m, agent, hijacked.socket, ws)
	if !m.add(s) {
		s.socket.cut()
		return
	}
	s.log.Info("Tunnel is open", "remote", r.RemoteAddr)
	s.ping()
	end := s.serve()
	m.remove(s)
	close(s.gone)
	m.metrics.ended.WithLabelValues(string(end.class)).Inc()
	s.log.Info("Tunnel has ended", "reason", end.Error(), "after", time.Since(s.opened).Round(time.Second).String(),
		"violations", s.violations.count)
}

// isHeld reports whether the agent has a session here and looks for another replica. A second session here would be used for what is dialed
// until the agent sees that it has reached the wrong one and ends it.
func (m *Manager) isHeld(r *http.Request, key string) bool {
	return m.opts.ReplicaID != "" && slices.Contains(strings.Split(r.Header.Get(HeldHeader), ","), m.opts.ReplicaID) && m.Connected(key)
}

func (m *Manager) replicaHeaders() http.Header {
	replicas := 1
	if m.opts.Replicas != nil {
		replicas = m.opts.Replicas()
	}
	return http.Header{ReplicaHeader: {m.opts.ReplicaID}, ReplicasHeader: {strconv.Itoa(replicas)}}
}

// Dial opens a connection through the newest healthy session of key. It does not wait for the agent to have dialed. The error is a
// *NoSessionError where no agent is connected.
func (m *Manager) Dial(ctx context.Context, key, network, address string) (net.Conn, error) {
	s := m.pick(key)
	if s == nil {
		m.metrics.dials.WithLabelValues("no_session").Inc()
		return nil, &NoSessionError{Key: key}
	}
	st, err := s.open(ctx, network, address)
	if err != nil {
		m.metrics.dials.WithLabelValues("refused").Inc()
		return nil, err
	}
	m.metrics.dials.WithLabelValues("opened").Inc()
	return st, nil
}

// Agent returns whose session Dial would use.
func (m *Manager) Agent(key string) (Agent, bool) {
	if s := m.pick(key); s != nil {
		return s.agent, true
	}
	return Agent{}, false
}

// Connected reports whether key has a session.
func (m *Manager) Connected(key string) bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return len(m.keys[key]) > 0
}

// Keys returns the keys that have a session, sorted.
func (m *Manager) Keys() []string {
	m.mu.RLock()
	keys := make([]string, 0, len(m.keys))
	for key := range m.keys {
		keys = append(keys, key)
	}
	m.mu.RUnlock()
	slices.Sort(keys)
	return keys
}

// Disconnect ends the sessions of all agents that match, and tells them why.
func (m *Manager) Disconnect(match func(Agent) bool, reason string) {
	for _, s := range m.sessions() {
		if match(s.agent) {
			s.close(ended(endDisconnect, "%s", reason), websocket.ClosePolicyViolation)
		}
	}
}
