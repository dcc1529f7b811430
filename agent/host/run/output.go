package run

import (
	"fmt"
	"sync"
)

// What is kept of each output stream: enough to see how it began and how it ended, little enough for a Secret of 1 MiB.
const (
	// MaxOutputBytes is the size limit of each output in a Result, without the note about what was left out.
	MaxOutputBytes = 128 << 10

	headBytes = MaxOutputBytes / 4
	tailBytes = MaxOutputBytes - headBytes
)

// outputBuffer keeps the head and the tail of a stream of any length. It never fails and never blocks, so that no program waits for it.
type outputBuffer struct {
	mu   sync.Mutex
	head []byte
	// tail is a ring buffer once it is full, which continues at next.
	tail    []byte
	next    int
	omitted int64
}

// Write implements io.Writer.
func (o *outputBuffer) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := len(p)
	o.head, p = fill(o.head, p, headBytes)
	if over := len(p) - tailBytes; over > 0 {
		o.omitted += int64(over)
		p = p[over:]
	}
	o.tail, p = fill(o.tail, p, tailBytes)
	o.omitted += int64(len(p))
	for len(p) > 0 {
		copied := copy(o.tail[o.next:], p)
		o.next = (o.next + copied) % tailBytes
		p = p[copied:]
	}
	return n, nil
}

// fill appends to a buffer up to a size, and returns what did not fit.
func fill(buffer, p []byte, size int) (filled, rest []byte) {
	n := min(size-len(buffer), len(p))
	return append(buffer, p[:n]...), p[n:]
}

// Bytes is what has been kept so far.
func (o *outputBuffer) Bytes() []byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append(joinOutput(o.head, o.tail[o.next:], o.omitted), o.tail[:o.next]...)
}

// Truncate shortens an output to limit bytes, as Run does: the first quarter, the last three quarters, and between them a note of how
// much was left out. A shorter output is returned as it is.
func Truncate(output []byte, limit int) []byte {
	if len(output) <= limit {
		return output
	}
	head, tail := output[:limit/4], output[len(output)-limit*3/4:]
	return joinOutput(head, tail, int64(len(output)-len(head)-len(tail)))
}

func joinOutput(head, tail []byte, omitted int64) []byte {
	all := append([]byte(nil), head...)
	if omitted > 0 {
		all = fmt.Appendf(all, "\n[%d bytes left out]\n", omitted)
	}
	return append(all, tail...)
}
