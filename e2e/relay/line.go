package relay

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// inFlight is how many chunks may be under way in one direction: 4 MiB, so that a delay alone does not make the line narrow.
const inFlight = 256

// line is one connection through the relay.
type line struct {
	near, far net.Conn
	delay     func(bytes int) time.Duration
	ctx       context.Context // ends with the line
	end       context.CancelFunc

	frozen   chan struct{} // closed by freeze
	freezing sync.Once
	finished atomic.Int32 // directions that have ended in order
}

// newLine is a line that is reset when ctx ends, or when end is called.
func newLine(ctx context.Context, near, far net.Conn, delay func(int) time.Duration) *line {
	l := &line{near: near, far: far, delay: delay, frozen: make(chan struct{})}
	l.ctx, l.end = context.WithCancel(ctx)
	return l
}

// run carries both directions until both have ended, or the line has.
func (l *line) run() {
	var all sync.WaitGroup
	for _, pair := range [][2]net.Conn{{l.near, l.far}, {l.far, l.near}} {
		chunks := make(chan chunk, inFlight)
		all.Go(func() { l.take(pair[0], chunks) })
		all.Go(func() { l.give(pair[1], chunks) })
	}
	all.Go(func() {
		<-l.ctx.Done()
		for _, conn := range []net.Conn{l.near, l.far} {
			if l.finished.Load() == 2 {
				_ = conn.Close() // what was written last is still on its way
			} else {
				reset(conn)
			}
		}
	})
	all.Wait()
}

// freeze stops the line without a word; false if it was frozen before.
func (l *line) freeze() (changed bool) {
	l.freezing.Do(func() {
		close(l.frozen)
		changed = true
	})
	return changed
}

// chunk is something that was sent; without bytes it is the orderly end of a direction.
type chunk struct {
	bytes []byte
	due   time.Time
}

// take reads until the connection ends. Of a frozen line it takes nothing: whoever sends finds the window full in the end, and
// hears nothing.
func (l *line) take(from net.Conn, chunks chan<- chunk) {
	for {
		buf := make([]byte, chunkSize)
		n, err := from.Read(buf)
		if l.isFrozen() || n > 0 && !l.send(chunks, buf[:n]) {
			return
		}
		switch {
		case errors.Is(err, io.EOF):
			l.send(chunks, nil)
			return
		case err != nil:
			l.end()
			return
		}
	}
}

func (l *line) send(chunks chan<- chunk, bytes []byte) bool {
	select {
	case chunks <- chunk{bytes, time.Now().Add(l.delay(len(bytes)))}:
		return true
	case <-l.frozen:
	case <-l.ctx.Done():
	}
	return false
}

// give hands on what was taken, when it is due and in its order. It ends the line when both directions have ended.
func (l *line) give(to net.Conn, chunks <-chan chunk) {
	for {
		select {
		case c := <-chunks:
			if !l.wait(time.Until(c.due)) {
				return
			}
			if c.bytes == nil {
				l.closeWrite(to)
				return
			}
			if _, err := to.Write(c.bytes); err != nil {
				l.end()
				return
			}
		case <-l.frozen:
			return
		case <-l.ctx.Done():
			return
		}
	}
}

// wait waits until a chunk is due; false if the line is frozen or has ended by then.
func (l *line) wait(d time.Duration) bool {
	select {
	case <-time.After(d):
	case <-l.frozen:
	case <-l.ctx.Done():
	}
	return !l.isFrozen() && l.ctx.Err() == nil
}

func (l *line) isFrozen() bool {
	select {
	case <-l.frozen:
		return true
	default:
		return false
	}
}

// closeWrite tells an end that nothing more comes. The line has ended when both have been told.
func (l *line) closeWrite(to net.Conn) {
	if half, ok := to.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
	if l.finished.Add(1) == 2 {
		l.end()
	}
}

// reset closes a connection as a broken line does: without the orderly end that TCP has.
func reset(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}
