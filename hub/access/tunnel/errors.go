package tunnel

import (
	"fmt"

	"github.com/drover-dev/drover/tunnel/session"
)

// NoSessionError says that no agent is connected under a key.
type NoSessionError struct{ Key string }

func (e *NoSessionError) Error() string {
	return fmt.Sprintf("no agent is connected for %s", e.Key)
}

// Errors of streams.
type (
	// SessionEndedError is what the streams of a session that has ended return.
	SessionEndedError = session.EndedError
	// RemoteError is the agent's own account of why a stream has ended, most often that it could not dial. The text is the agent's and not to
	// be believed.
	RemoteError = session.RemoteError
	// LimitError says that something was refused or ended because it reached a limit.
	LimitError = session.LimitError
)

// The classes of ends that the hub decides.
const (
	endSilent     session.Class = "silent"
	endLimit      session.Class = "limit"
	endDisconnect session.Class = "disconnect"
	endDrain      session.Class = "drain"
)
