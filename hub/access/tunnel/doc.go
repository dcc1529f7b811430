// Package tunnel is the hub's end of the tunnels that agents hold open to it. It owns the table of sessions, which of them a dial uses, and
// when one is given up. What a session does is in package tunnel/session, which agents share.
//
// It must not decide who may connect or what may be dialed: its callers have authenticated the agent, and authorize the dials.
//
// No lock is held while something is read from or written to a socket; callbacks and Dial run without any.
package tunnel
