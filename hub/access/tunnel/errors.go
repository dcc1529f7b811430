package tunnel

import (
	"errors"
	"fmt"
)

// NoSessionError says that no agent is connected under a key.
type NoSessionError struct{ Key string }

func (e *NoSessionError) Error() string {
	return fmt.Sprintf("no agent is connected for %s", e.Key)
}

// SessionEndedError is what the streams of a session that has ended answer.
type SessionEndedError struct {
	Key    string
	Reason string
}

func (e *SessionEndedError) Error() string {
	return fmt.Sprintf("the tunnel to %s has ended: %s", e.Key, e.Reason)
}

// RemoteError is the agent's own account of why a stream has ended, most often that it could not dial. The text is the agent's and not to
// be believed.
type RemoteError struct{ Text string }

func (e *RemoteError) Error() string { return "the agent says: " + e.Text }

// LimitError says that something was refused or ended because it reached a limit.
type LimitError struct{ What string }

func (e *LimitError) Error() string { return e.What }

// endReason is the class of a session's end, for metrics.
type endReason string

const (
	endByAgent    endReason = "agent"
	endSilent     endReason = "silent"
	endWrite      endReason = "write"
	endProtocol   endReason = "protocol"
	endLimit      endReason = "limit"
	endDisconnect endReason = "disconnect"
	endDrain      endReason = "drain"
)

// sessionEnd is why a session ends: for the log, for its streams, and for metrics.
type sessionEnd struct {
	class endReason
	err   error
}

func (e *sessionEnd) Error() string { return e.err.Error() }
func (e *sessionEnd) Unwrap() error { return e.err }

func ended(class endReason, format string, args ...any) *sessionEnd {
	return &sessionEnd{class: class, err: fmt.Errorf(format, args...)}
}

// classOf is the class of an error that a session's reader came back with.
func classOf(err error) endReason {
	if end, ok := errors.AsType[*sessionEnd](err); ok {
		return end.class
	}
	return endByAgent
}
