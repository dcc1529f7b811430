package session

import (
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"

	"github.com/drover-dev/drover/tunnel/wire"
)

// TestAgentSlowToPause: on a busy machine it takes an agent seconds to see the request to pause, and all that it sends until then arrives.
// One that never sees it loses the stream, after a time that is limited.
func TestAgentSlowToPause(t *testing.T) {
	for _, c := range []struct {
		name      string
		readAfter time.Duration
		ended     bool
	}{{"in time", 5 * time.Second, false}, {"never", time.Hour, true}} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := NewShared(Limits{}, nil)
				s := New(m, NewSocket(discardConn{}, m), &websocket.Conn{}, Options{Peer: "a"})
				st, err := s.open(t.Context(), "tcp", "a:1")
				if err != nil {
					t.Fatal(err)
				}
				begin, read := time.Now(), make(chan int)
				go func() {
					time.Sleep(c.readAfter)
					n, buffer := 0, make([]byte, 1<<20)
					for {
						more, err := st.Read(buffer)
						if n += more; err != nil {
							read <- n
							return
						}
					}
				}()
				const message, messages = 32 << 10, 600
				for range messages {
					if err := s.handle(wire.Header{Stream: st.id, Type: wire.Data}, make([]byte, message), emptyBody{}); err != nil {
						t.Fatal(err)
					}
				}
				took := time.Since(begin)
				st.end(io.EOF, false)
				if n := <-read; c.ended == (n == message*messages) {
					t.Errorf("%d of %d bytes arrived", n, message*messages)
				}
				if took > 10*time.Second {
					t.Errorf("the session was held up for %s", took)
				}
			})
		})
	}
}

type emptyBody struct{}

func (emptyBody) Read([]byte) (int, error) { return 0, io.EOF }
