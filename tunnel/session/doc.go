// Package session is a tunnel between two ends over a websocket: the streams that share it, their flow control and what they may cost. Hub
// and agent both use it, so that they differ only in who opens streams and who dials. The wire is that of rancher/remotedialer, so that
// either end may also be that library.
//
// It knows nothing of agents, hubs, credentials or reconnecting: its callers have authenticated the other end, and decide what is dialed.
//
// # How a session works
//
// One goroutine reads a session and never waits for anything else: not for a consumer, whose bytes are kept in the stream's buffer, not
// for a dial, and not for the socket, because whatever it has to answer is put into the session's control queue. Another goroutine writes,
// and lives only while there is something to write: control messages first, then the streams that have data in turn. A stream's Write
// waits until its bytes are in the batch that is sent next, so that nothing has to be kept for a peer that does not read.
//
// No lock is held while something is read from or written to a socket. The order of locks is stream, session, Shared; callbacks and dials
// run without any.
package session
