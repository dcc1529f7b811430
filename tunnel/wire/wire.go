// Package wire is the encoding of what hub and agents say to each other in a tunnel: the messages of rancher/remotedialer, each in one
// binary message of a websocket. It knows nothing of sessions, and does no I/O.
//
// A message is a varint that receivers ignore, the varint of the stream, the varint of the type, for Data and Connect a varint that
// receivers ignore too, and a body. All varints are signed, as in encoding/binary.
package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Type is what a message is for.
type Type int64

// The types of messages, in the order of their numbers. AddClient and RemoveClient are for hubs that forward into each other's sessions.
const (
	// Data carries bytes of a stream.
	Data Type = iota + 1
	// Connect asks for a new stream; its body is "network/address".
	Connect
	// Error ends a stream in both directions; its body says why, and EOF is the ordinary end.
	Error
	AddClient
	RemoveClient
	// Pause asks not to send Data of the stream until Resume.
	Pause
	Resume
	// SyncConnections lists all streams that its sender knows.
	SyncConnections
)

const (
	// MaxHeader is the longest header, four varints.
	MaxHeader = 4 * binary.MaxVarintLen64
	// MaxTarget is the longest body of a Connect that agents read whole.
	MaxTarget = 266
	// EOF is the body of the Error that means the ordinary end of a stream.
	EOF = "EOF"

	// legacyDeadline is what senders put where receivers ignore it.
	legacyDeadline = 15000
)

var (
	// ErrShort says that the header goes on after the bytes at hand.
	ErrShort = errors.New("message ends in its header")
	errLong  = errors.New("message has a number of more than 64 bits in its header")
)

// Header is what a message says before its body.
type Header struct {
	Stream int64
	Type   Type
}

// ParseHeader reads the header at the start of b and returns its length. The error is ErrShort where b must be longer.
func ParseHeader(b []byte) (Header, int, error) {
	var fields [4]int64
	length, count := 0, 3
	for i := 0; i < count; i++ {
		value, n := binary.Varint(b[length:])
		switch {
		case n == 0:
			return Header{}, 0, ErrShort
		case n < 0:
			return Header{}, 0, errLong
		}
		fields[i] = value
		length += n
		if i == 2 && hasDeadline(Type(value)) {
			count = 4
		}
	}
	return Header{Stream: fields[1], Type: Type(fields[2])}, length, nil
}

// AppendHeader appends the header of the message with this number.
func AppendHeader(b []byte, number int64, h Header) []byte {
	b = binary.AppendVarint(b, number)
	b = binary.AppendVarint(b, h.Stream)
	b = binary.AppendVarint(b, int64(h.Type))
	if hasDeadline(h.Type) {
		b = binary.AppendVarint(b, legacyDeadline)
	}
	return b
}

func hasDeadline(t Type) bool { return t == Data || t == Connect }

// Target is the body of a Connect. An agent would cut off what is too long, and dial something else.
func Target(network, address string) (string, error) {
	target := network + "/" + address
	switch {
	case network == "" || address == "":
		return "", fmt.Errorf("network %q and address %q must both be given", network, address)
	case len(target) > MaxTarget:
		return "", fmt.Errorf("address of %d characters is too long for a tunnel, it takes %d", len(address), MaxTarget-len(network)-1)
	}
	return target, nil
}

// ParseStreams reads the body of a SyncConnections.
func ParseStreams(body []byte) ([]int64, error) {
	if len(body)%8 != 0 {
		return nil, fmt.Errorf("list of streams has %d bytes, which is no multiple of 8", len(body))
	}
	streams := make([]int64, 0, len(body)/8)
	for ; len(body) > 0; body = body[8:] {
		streams = append(streams, int64(binary.LittleEndian.Uint64(body)))
	}
	return streams, nil
}

// FlowHeader is in the request and in the answer of an end that keeps a pause for each direction of a stream. The library keeps one for
// both, for which its peer must compensate.
const FlowHeader = "X-Drover-Flow"

// Directional is the value of FlowHeader.
const Directional = "directional"
