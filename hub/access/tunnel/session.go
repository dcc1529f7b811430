package tunnel

import (
	"net/http"
	"time"

	"github.com/go-logr/logr"
	"github.com/gorilla/websocket"

	"github.com/drover-dev/drover/tunnel/session"
	"github.com/drover-dev/drover/tunnel/wire"
)

// agentSession is a session of an agent.
type agentSession struct {
	*session.Session
	agent  Agent
	log    logr.Logger
	opened time.Time
	// gone is closed when the session is not in the Manager's table any more.
	gone chan struct{}
}

// id identifies the session among those of its key.
func (s *agentSession) id() int64 { return s.opened.UnixNano() }

func newSession(m *Manager, agent Agent, r *http.Request, socket *session.Socket, ws *websocket.Conn) *agentSession {
	s := &agentSession{agent: agent, opened: time.Now(), gone: make(chan struct{}),
		log: m.log.WithValues("key", agent.Key, "identity", agent.Identity, "Cluster", agent.Cluster)}
	s.Session = session.New(m.shared, socket, ws, session.Options{
		Peer: agent.Key, Probe: probeInterval, Directional: r.Header.Get(wire.FlowHeader) == wire.Directional,
		OnViolation: func(what string) {
			s.log.Info("Agent violated the tunnel protocol; further violations of this session are only counted", "what", what)
		},
	})
	return s
}
