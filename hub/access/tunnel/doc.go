// Package tunnel is the hub's end of the tunnels that agents hold open to it. It owns the sessions, their streams and what they may
// cost, and gives out net.Conns that lead through them. The wire is that of rancher/remotedialer, so that agents of other hubs connect
// unchanged.
//
// It must not decide who may connect or what may be dialed: its callers have authenticated the agent, and authorize the dials.
//
// # How a session works
//
// One goroutine reads a session and never waits for anything else: not for a consumer, whose bytes are kept in the stream's buffer, and
// not for the socket, because whatever it has to answer is put into the session's control queue. Another goroutine writes, and lives
// only while there is something to write: control messages first, then the streams that have data in turn. A stream's Write waits until its
// bytes are in the batch that is sent next, so that nothing has to be kept for a peer that does not read.
//
// No lock is held while something is read from or written to a socket. The order of locks is Manager, stream, session; callbacks and Dial
// run without any.
package tunnel
