package host

import (
	"fmt"
	"sync"
)

// What is kept of each output stream: enough to see how it began and how it ended, little enough for a Secret of 1 MiB.
const (
	headBytes = 32 << 10
	tailBytes = 96 << 10
)

// output keeps the head and the tail of a stream of any length. It never fails and never blocks, so that no program waits for it.
type output struct {
	mu      sync.Mutex
	head    []byte
	tail    []byte // a ring once it is full
	next    int    // where the ring goes on
	skipped int64
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := len(p)
	if room := headBytes - len(o.head); room > 0 {
		take := min(room, len(p))
		o.head = append(o.head, p[:take]...)
		p = p[take:]
	}
	if over := len(p) - tailBytes; over > 0 {
		o.skipped += int64(over)
		p = p[over:]
	}
	if room := tailBytes - len(o.tail); room > 0 {
		take := min(room, len(p))
		o.tail = append(o.tail, p[:take]...)
		p = p[take:]
	}
	o.skipped += int64(len(p))
	for len(p) > 0 {
		copied := copy(o.tail[o.next:], p)
		o.next = (o.next + copied) % tailBytes
		p = p[copied:]
	}
	return n, nil
}

// Bytes is what was kept so far.
func (o *output) Bytes() []byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := append([]byte(nil), o.head...)
	if o.skipped > 0 {
		all = fmt.Appendf(all, "\n[%d bytes left out]\n", o.skipped)
	}
	all = append(all, o.tail[o.next:]...)
	return append(all, o.tail[:o.next]...)
}

// Shorten gives what is kept of an output.
func Shorten(all []byte) []byte {
	var kept output
	_, _ = kept.Write(all)
	return kept.Bytes()
}
