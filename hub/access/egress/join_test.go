package egress

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// connected returns the two ends of a connection.
func connected(t *testing.T) (near, far *net.TCPConn) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	dialed, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	accepted, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = dialed.Close(), accepted.Close() })
	return dialed.(*net.TCPConn), accepted.(*net.TCPConn)
}

// joinedEnds returns the ends of two connections that are joined, and what is closed when they are no more.
func joinedEnds(t *testing.T, stall time.Duration) (client, server *net.TCPConn, ended <-chan struct{}) {
	t.Helper()
	client, clientSide := connected(t)
	serverSide, server := connected(t)
	joined := make(chan struct{})
	go func() {
		if err := join(clientSide, serverSide, stall, maxReceived); err != nil {
			t.Error(err)
		}
		close(joined)
	}()
	return client, server, joined
}

// pipes counts the open pipes of this process.
func pipes(t *testing.T) int {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	for _, file := range files {
		if to, err := os.Readlink("/proc/self/fd/" + file.Name()); err == nil && strings.HasPrefix(to, "pipe:") {
			count++
		}
	}
	return count
}

// TestJoin: what is sent arrives unchanged; the end of one way does not end
// the other; and a connection has no pipe for itself.
func TestJoin(t *testing.T) {
	before := pipes(t)
	client, server, joined := joinedEnds(t, stallTimeout)

	for range 3 {
		if _, err := server.Write([]byte("ping")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(client, make([]byte, 4)); err != nil {
			t.Fatal(err)
		}
	}
	if now := pipes(t); now > before {
		t.Errorf("%d pipes are open, and %d were before", now, before)
	}

	content := make([]byte, 8<<20)
	source := rand.NewChaCha8([32]byte{1})
	_, _ = source.Read(content)
	sent := make(chan error, 1)
	go func() {
		_, err := client.Write(content)
		sent <- errors.Join(err, client.CloseWrite())
	}()
	if got, err := io.ReadAll(server); err != nil || !bytes.Equal(got, content) {
		t.Errorf("%d bytes have arrived of %d, %v", len(got), len(content), err)
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
	if _, err := server.Write([]byte("after the end")); err != nil {
		t.Error(err)
	}
	if err := server.Close(); err != nil {
		t.Error(err)
	}
	if got, err := io.ReadAll(client); err != nil || string(got) != "after the end" {
		t.Errorf("the client has got %q, %v", got, err)
	}
	<-joined
}

// TestJoinBroken: a connection that breaks ends the other one.
func TestJoinBroken(t *testing.T) {
	client, server, joined := joinedEnds(t, stallTimeout)
	if err := errors.Join(server.SetLinger(0), server.Close()); err != nil { // a reset
		t.Fatal(err)
	}
	if _, err := io.ReadAll(client); err != nil {
		t.Log(err) // an end or a reset
	}
	_ = client.Close()
	<-joined
}

// TestJoinWithStalledServer: a server that keeps a connection after its client has ended it, or that does not read, is given up.
func TestJoinWithStalledServer(t *testing.T) {
	leave := func(client *net.TCPConn) { _ = client.Close() }
	fill := func(client *net.TCPConn) {
		// Until the buffers of all sockets are full, and then until the connection is closed.
		for data, err := make([]byte, 1<<20), error(nil); err == nil; {
			_, err = client.Write(data)
		}
	}
	for name, end := range map[string]func(*net.TCPConn){"the client has gone": leave, "the server does not read": fill} {
		t.Run(name, func(t *testing.T) {
			client, _, joined := joinedEnds(t, 50*time.Millisecond)
			var ending sync.WaitGroup
			ending.Go(func() { end(client) })
			select {
			case <-joined:
			case <-time.After(time.Minute):
				t.Error("the connection to the server is kept")
			}
			_ = client.Close()
			ending.Wait()
		})
	}
}

// TestJoinWithEndlessAnswer: a server that sends without end is given up, and its client gets the limit and one buffer at most.
func TestJoinWithEndlessAnswer(t *testing.T) {
	const limit = 1 << 20
	client, clientSide := connected(t)
	serverSide, server := connected(t)
	joined := make(chan error, 1)
	go func() { joined <- join(clientSide, serverSide, stallTimeout, limit) }()
	var sending sync.WaitGroup
	sending.Go(func() {
		for data, err := make([]byte, 64<<10), error(nil); err == nil; {
			_, err = server.Write(data)
		}
	})
	got, err := io.ReadAll(client)
	if len(got) <= limit || len(got) > limit+32<<10 {
		t.Errorf("the client has got %d bytes, %v", len(got), err)
	}
	if err := <-joined; !errors.Is(err, errTooMuch) {
		t.Errorf("the connection has ended with %v", err)
	}
	sending.Wait()
}
