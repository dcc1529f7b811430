// Package tunneltest has the TCP servers that tests dial through a tunnel.
package tunneltest

import (
	"io"
	"net"
	"testing"
)

// Listen starts a TCP server that handles each connection with serve and then closes it. It returns the server's address; the server stops
// at the end of the test.
func Listen(t testing.TB, serve func(net.Conn)) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				serve(conn)
			}()
		}
	}()
	return listener.Addr().String()
}

// Echo sends back what it receives.
func Echo(conn net.Conn) { _, _ = io.Copy(conn, conn) }
