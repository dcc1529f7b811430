package wire

import (
	"crypto/subtle"
	"encoding/binary"
	"math/rand/v2"

	"github.com/gorilla/websocket"
)

// MaxFrameHeader is the longest header of a websocket frame, with its mask.
const MaxFrameHeader = 14

// Frames puts together whole websocket frames (RFC 6455, section 5.2). That is done here and not by the websocket library so that many of
// them go out in one write.
type Frames struct {
	// Masked is for the frames of a client, which are masked; those of a server are not.
	Masked bool
}

// Append appends a frame. kind is a message type of the websocket library.
func (f Frames) Append(b []byte, kind int, payload []byte) []byte {
	b, mask := f.appendHeader(b, kind, len(payload))
	return f.mask(append(b, payload...), len(payload), mask)
}

// AppendMessage appends a message in a frame of its own.
func AppendMessage[Body string | []byte](f Frames, b []byte, number int64, h Header, body Body) []byte {
	var room [MaxHeader]byte
	header := AppendHeader(room[:0], number, h)
	length := len(header) + len(body)
	b, mask := f.appendHeader(b, websocket.BinaryMessage, length)
	b = append(b, header...)
	return f.mask(append(b, body...), length, mask)
}

// appendHeader appends the header of a frame with a payload of this length, and returns the key of its mask.
func (f Frames) appendHeader(b []byte, kind, length int) ([]byte, uint32) {
	const final, masked = 0x80, 0x80
	bit := byte(0)
	if f.Masked {
		bit = masked
	}
	b = append(b, final|byte(kind))
	switch {
	case length < 126:
		b = append(b, bit|byte(length))
	case length < 1<<16:
		b = binary.BigEndian.AppendUint16(append(b, bit|126), uint16(length))
	default:
		b = binary.BigEndian.AppendUint64(append(b, bit|127), uint64(length))
	}
	if !f.Masked {
		return b, 0
	}
	// The generator is that of the runtime, seeded by the system and not predictable.
	key := rand.Uint32()
	return binary.LittleEndian.AppendUint32(b, key), key
}

// maskBlock is how much is masked at once. It is a multiple of a mask's length.
const maskBlock = 1 << 10

// mask masks the last bytes of b, if frames are masked.
func (f Frames) mask(b []byte, length int, key uint32) []byte {
	if !f.Masked {
		return b
	}
	var block [maskBlock]byte
	payload := b[len(b)-length:]
	for i := 0; i < min(maskBlock, length); i += 4 {
		binary.LittleEndian.PutUint32(block[i:], key)
	}
	for len(payload) > 0 {
		n := min(len(payload), maskBlock)
		subtle.XORBytes(payload[:n], payload[:n], block[:n])
		payload = payload[n:]
	}
	return b
}
