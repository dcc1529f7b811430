package tunnel

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/gorilla/websocket"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/drover-dev/drover/tunnel/session"
	"github.com/drover-dev/drover/tunnel/wire"
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
	// Cluster is the cluster as namespace/name, for the log; empty where it is not known.
	Cluster string
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
	// shared is what the sessions have in common.
	shared *session.Shared

	mu sync.RWMutex
	// keys are the sessions of each key, the newest last.
	keys     map[string][]*agentSession
	total    int
	watched  bool
	draining bool
	changed  []func(key string)
}

// New makes a Manager.
func New(opts Options) *Manager {
	m := &Manager{opts: opts, limits: opts.Limits.withDefaults(), log: opts.Logger, keys: map[string][]*agentSession{}}
	m.metrics = newMetrics(m, opts.Registerer)
	m.shared = session.NewShared(opts.Limits.Limits, m.metrics)
	return m
}

// OnChange has f called when the first session of a key has come, or the last has gone. It is called without locks and must not block.
// Calls for two changes in quick succession may come in either order, so that f asks Connected. All calls of OnChange come before the first
// of Serve.
func (m *Manager) OnChange(f func(key string)) { m.changed = append(m.changed, f) }

// Serve makes the request a session of agent, which the caller has authenticated, and returns when it has begun. The session runs on its
// own, so that what the HTTP server needs for a request is free while it lasts.
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
	hijacked := &session.Hijacker{ResponseWriter: w, Shared: m.shared}
	upgrader := websocket.Upgrader{
		HandshakeTimeout: 10 * time.Second,
		// Agents are no browsers: they prove who they are with a header that no web page can make a browser send.
		CheckOrigin: func(*http.Request) bool { return true },
		// Data is read past this buffer, which is for headers, and an idle session has no other.
		ReadBufferSize: readBuffer,
		// With a pool the connection has no write buffer; a session writes past it.
		WriteBufferPool: &sync.Pool{},
	}
	ws, err := upgrader.Upgrade(hijacked, r, m.replicaHeaders())
	if err != nil {
		m.log.Info("An agent's request did not become a tunnel", "key", agent.Key, "Cluster", agent.Cluster, "err", err.Error())
		return
	}
	s := newSession(m, agent, r, hijacked.Socket, ws)
	if !m.add(s) {
		hijacked.Socket.Cut()
		return
	}
	s.log.Info("Tunnel is open", "remote", r.RemoteAddr)
	go m.run(s)
}

// run runs a session until it ends. As in the HTTP server, a panic ends one session and not the hub.
func (m *Manager) run(s *agentSession) {
	end := session.Ended(session.Protocol, "a message led to a panic")
	defer func() {
		if cause := recover(); cause != nil {
			s.log.Error(fmt.Errorf("panic: %v", cause), "Serving a tunnel failed", "stack", string(debug.Stack()))
			s.Fail(end)
		}
		m.remove(s)
		close(s.gone)
		m.metrics.ended.WithLabelValues(string(end.Class)).Inc()
		s.log.Info("Tunnel has ended", "reason", end.Error(), "after", time.Since(s.opened).Round(time.Second).String(),
			"violations", s.Violations())
	}()
	s.Ping()
	end = s.Serve()
}

// readBuffer is the size in bytes of a session's buffer for reading.
const readBuffer = 512

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
	return http.Header{ReplicaHeader: {m.opts.ReplicaID}, ReplicasHeader: {strconv.Itoa(replicas)}, wire.FlowHeader: {wire.Directional}}
}

// Dial opens a connection through the newest healthy session of key. It does not wait for the agent to have dialed. The error is a
// *NoSessionError where no agent is connected.
func (m *Manager) Dial(ctx context.Context, key, network, address string) (net.Conn, error) {
	return m.dial(ctx, m.pick(key), key, network, address)
}

// dial opens a connection through a session; nil is none.
func (m *Manager) dial(ctx context.Context, s *agentSession, key, network, address string) (net.Conn, error) {
	if s == nil {
		m.metrics.dials.WithLabelValues("no_session").Inc()
		return nil, &NoSessionError{Key: key}
	}
	conn, err := s.Open(ctx, network, address)
	if err != nil {
		m.metrics.dials.WithLabelValues("refused").Inc()
		return nil, err
	}
	m.metrics.dials.WithLabelValues("opened").Inc()
	return conn, nil
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
			s.Close(session.Ended(endDisconnect, "%s", reason), websocket.ClosePolicyViolation)
		}
	}
}
