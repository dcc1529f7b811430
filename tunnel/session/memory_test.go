package session

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"

	"github.com/gorilla/websocket"

	"github.com/drover-dev/drover/tunnel/wire"
)

// receiver is a session whose messages come from the test.
type receiver struct {
	*Session
	t *testing.T
}

func newReceiver(t *testing.T, shared *Shared, o Options) receiver {
	t.Helper()
	o.Peer = "a"
	return receiver{New(shared, NewSocket(discardConn{}, shared), &websocket.Conn{}, o), t}
}

func (r receiver) openStream() *stream {
	r.t.Helper()
	st, err := r.open(r.t.Context(), "tcp", "a:1")
	if err != nil {
		r.t.Fatal(err)
	}
	return st
}

func (r receiver) message(id int64, kind wire.Type, head []byte, body io.Reader) {
	r.t.Helper()
	if err := r.handle(wire.Header{Stream: id, Type: kind}, head, body); err != nil {
		r.t.Error(err)
	}
}

// data receives so many bytes of a stream, and endStream its end.
func (r receiver) data(st *stream, size int) {
	r.t.Helper()
	r.message(st.id, wire.Data, make([]byte, size), emptyBody{})
}

func (r receiver) endStream(st *stream) {
	r.t.Helper()
	r.message(st.id, wire.Error, []byte(wire.EOF), emptyBody{})
}

// TestEndedStreamsCount: bytes of streams that have ended and that nobody reads count against the limits of the session, and a stream that
// was shed does not look complete.
func TestEndedStreamsCount(t *testing.T) {
	shared := NewShared(Limits{Session: 1 << 20, Streams: 25}, nil)
	r := newReceiver(t, shared, Options{})
	var streams []*stream
	for range 20 {
		st := r.openStream()
		r.data(st, 1<<20)
		r.endStream(st)
		streams = append(streams, st)
	}
	if used := shared.Used(); used > 2<<20+2*largeChunk {
		t.Errorf("%d KiB are kept for streams that have ended", used>>10)
	}
	complete := 0
	for _, st := range streams {
		got, err := io.ReadAll(st)
		switch {
		case err == nil && len(got) == 1<<20:
			complete++
		case !errors.As(err, new(*LimitError)):
			t.Errorf("a stream that was shed ends after %d bytes with %v", len(got), err)
		}
	}
	if complete == 0 || complete == len(streams) {
		t.Errorf("%d streams can be read to the end", complete)
	}
	if left := len(r.all()); left != 0 || shared.Used() != 0 {
		t.Errorf("%d streams and %d bytes are left when all was read", left, shared.Used())
	}
}

// TestEndedStreamsAreStreams: streams with unread bytes count against the limit of streams until they are read or closed.
func TestEndedStreamsAreStreams(t *testing.T) {
	r := newReceiver(t, NewShared(Limits{Streams: 2}, nil), Options{})
	read, closed := r.openStream(), r.openStream()
	for _, st := range []*stream{read, closed} {
		r.data(st, 1)
		r.endStream(st)
	}
	if _, err := r.open(t.Context(), "tcp", "a:1"); !errors.As(err, new(*LimitError)) {
		t.Errorf("one stream too many: %v", err)
	}
	if got, err := io.ReadAll(read); err != nil || len(got) != 1 {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	_ = closed.Close()
	for range 2 {
		r.endStream(r.openStream()) // nothing waits in it
	}
	if left := len(r.all()); left != 0 {
		t.Errorf("%d streams are left", left)
	}
}

// TestFullProcess: when all sessions together hold too much, the stream ends that holds most, whichever session receives, whether or not
// its own session still receives or has ended.
func TestFullProcess(t *testing.T) {
	for name, stop := range map[string]func(receiver, *stream){
		"open":          func(receiver, *stream) {},
		"stream ended":  receiver.endStream,
		"session ended": func(r receiver, _ *stream) { r.endStreams(Ended(Protocol, "the end")) },
	} {
		t.Run(name, func(t *testing.T) {
			shared := NewShared(Limits{Process: 2 << 20}, nil)
			hog, other := newReceiver(t, shared, Options{}), newReceiver(t, shared, Options{})
			small, large := other.openStream(), hog.openStream()
			other.data(small, 300<<10)
			hog.data(large, 1<<20)
			hog.data(large, 1<<20)
			stop(hog, large)
			other.data(small, 1<<10)
			if n, err := large.Read(make([]byte, 1)); !errors.As(err, new(*LimitError)) {
				t.Errorf("the stream that holds most: %d bytes, %v", n, err)
			}
			got := make([]byte, 301<<10)
			if n, err := io.ReadFull(small, got); err != nil {
				t.Errorf("the other stream: %d bytes, %v", n, err)
			}
			if shared.Used() != 0 {
				t.Errorf("%d bytes are left", shared.Used())
			}
		})
	}
}

// heldBody is the rest of a message, of which a part comes only after release.
type heldBody struct{ waits, release chan struct{} }

func newHeldBody() *heldBody { return &heldBody{make(chan struct{}), make(chan struct{})} }

func (b *heldBody) Read(p []byte) (int, error) {
	close(b.waits)
	<-b.release
	return min(len(p), 100), io.EOF
}

// receiveHeld begins to receive a message of a stream, and returns what receives the rest.
func (r receiver) receiveHeld(id int64) (rest func()) {
	body, handled := newHeldBody(), make(chan struct{})
	go func() {
		defer close(handled)
		r.message(id, wire.Data, []byte("begin"), body)
	}()
	<-body.waits
	return func() {
		close(body.release)
		<-handled
	}
}

// TestDropWhileReceiving: a stream whose dial fails while a part of a message is missing leaves no memory behind.
func TestDropWhileReceiving(t *testing.T) {
	shared := NewShared(Limits{}, nil)
	fail := make(chan struct{})
	r := newReceiver(t, shared, Options{Client: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		<-fail
		return nil, errors.New("refused")
	}})
	r.message(1, wire.Connect, []byte("tcp/a:1"), emptyBody{})
	rest := r.receiveHeld(1)
	close(fail)
	r.dialed.Wait()
	rest()
	if shared.Used() != 0 {
		t.Errorf("%d bytes are kept of a stream that has ended", shared.Used())
	}
}

// TestShedWhileReceiving: a stream that another session sheds while a part of a message is missing leaves no memory behind.
func TestShedWhileReceiving(t *testing.T) {
	// The memory of 1 MiB and of one byte is more than that, and that of 1 MiB is not.
	shared := NewShared(Limits{Process: 1<<20 + smallChunk + smallChunk/2}, nil)
	hog, other := newReceiver(t, shared, Options{}), newReceiver(t, shared, Options{})
	st := hog.openStream()
	hog.data(st, 1<<20)
	rest := hog.receiveHeld(st.id)
	small := other.openStream()
	other.data(small, 1)
	other.data(small, 1)
	rest()
	if _, err := st.Read(make([]byte, 1)); !errors.As(err, new(*LimitError)) {
		t.Errorf("the stream that was shed: %v", err)
	}
	if used := shared.Used(); used != smallChunk || len(hog.all()) != 0 {
		t.Errorf("%d bytes and %d streams are kept", used, len(hog.all()))
	}
}

// TestSheddingInParallel: sessions that receive more than fits, and readers that read a part of it, leave nothing behind.
func TestSheddingInParallel(t *testing.T) {
	shared := NewShared(Limits{Process: 1 << 20, Session: 1 << 20, Streams: 1000}, nil)
	var all sync.WaitGroup
	for range 4 {
		r := newReceiver(t, shared, Options{})
		all.Go(func() {
			var readers sync.WaitGroup
			var streams []*stream
			for range 50 {
				st, err := r.open(t.Context(), "tcp", "a:1")
				if err != nil {
					t.Error(err)
					break
				}
				streams = append(streams, st)
				if len(streams)%2 == 0 {
					readers.Go(func() { _, _ = io.Copy(io.Discard, st) })
				}
				for range 10 {
					r.data(streams[rand.IntN(len(streams))], rand.IntN(128<<10))
				}
				r.endStream(streams[rand.IntN(len(streams))])
			}
			for _, st := range streams {
				r.endStream(st)
			}
			readers.Wait()
			for _, st := range streams {
				_ = st.Close()
			}
			if left := len(r.all()); left != 0 {
				t.Errorf("%d streams are left", left)
			}
		})
	}
	all.Wait()
	if shared.Used() != 0 || len(shared.sessions) != 0 {
		t.Errorf("%d bytes and %d sessions are left", shared.Used(), len(shared.sessions))
	}
}
