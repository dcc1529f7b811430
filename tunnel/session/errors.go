package session

import (
	"errors"
	"fmt"
)

// EndedError is what the streams of a session that has ended return.
type EndedError struct {
	// Peer is the other end.
	Peer   string
	Reason string
}

func (e *EndedError) Error() string {
	return fmt.Sprintf("the tunnel to %s has ended: %s", e.Peer, e.Reason)
}

// RemoteError is the peer's own account of why a stream has ended, most often that it could not dial. The text is the peer's and not to be
// believed.
type RemoteError struct{ Text string }

func (e *RemoteError) Error() string { return "the agent says: " + e.Text }

// LimitError says that something was refused or ended because it reached a limit.
type LimitError struct{ What string }

func (e *LimitError) Error() string { return e.What }

// Class is the class of a session's end, for metrics.
type Class string

// The classes of ends that a session finds. Its users have others.
const (
	// ByPeer is that of a connection that was closed or lost.
	ByPeer   Class = "agent"
	Write    Class = "write"
	Protocol Class = "protocol"
)

// End is why a session ends: for the log, for its streams, and for metrics.
type End struct {
	Class Class
	err   error
}

func (e *End) Error() string { return e.err.Error() }

// Unwrap returns the error that ended the session.
func (e *End) Unwrap() error { return e.err }

// Ended returns an end of a class with this reason.
func Ended(class Class, format string, args ...any) *End {
	return &End{Class: class, err: fmt.Errorf(format, args...)}
}

// classOf is the class of an error of a session's reader.
func classOf(err error) Class {
	if end, ok := errors.AsType[*End](err); ok {
		return end.Class
	}
	return ByPeer
}
