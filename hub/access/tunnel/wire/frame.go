package wire

import (
	"encoding/binary"

	"github.com/gorilla/websocket"
)

// MaxFrameHeader is the longest header of a websocket frame of a server.
const MaxFrameHeader = 10

// AppendFrame appends the header of a whole, unmasked websocket frame (RFC 6455, section 5.2) with a payload of this length, as a
// server sends it. kind is a message type of the websocket library. Frames are put together here and not by that library so that many
// of them go out in one write.
func AppendFrame(b []byte, kind, length int) []byte {
	const final = 0x80
	b = append(b, final|byte(kind))
	switch {
	case length < 126:
		return append(b, byte(length))
	case length < 1<<16:
		return binary.BigEndian.AppendUint16(append(b, 126), uint16(length))
	default:
		return binary.BigEndian.AppendUint64(append(b, 127), uint64(length))
	}
}

// AppendMessage appends a message in a frame of its own.
func AppendMessage[Body string | []byte](b []byte, number int64, h Header, body Body) []byte {
	var room [MaxHeader]byte
	header := AppendHeader(room[:0], number, h)
	b = AppendFrame(b, websocket.BinaryMessage, len(header)+len(body))
	b = append(b, header...)
	return append(b, body...)
}
