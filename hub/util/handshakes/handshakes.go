// Package handshakes has TLS handshakes of a server's connections in goroutines of their own. net/http has a handshake in the goroutine
// that serves the connection, whose stack grows to 16 KiB for it and stays so for as long as the connection lasts, since what it uses while
// it waits is a little more than the quarter up to which Go's garbage collector returns the half. A hub has ten thousand of them.
package handshakes

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"runtime/debug"
	"time"
)

// Listener accepts connections whose handshake is done.
type Listener struct {
	net.Listener
	config  *tls.Config
	timeout time.Duration
	log     *log.Logger
	// done ends with Close, and all handshakes with it.
	done   context.Context
	cancel context.CancelFunc
	// results are connections, and the errors of the listener below.
	results chan result
}

type result struct {
	conn *tls.Conn
	err  error
}

// Listen returns a Listener that takes connections from another one, and begins to take them. A handshake that has not ended after timeout
// ends the connection, and is logged as net/http does.
func Listen(listener net.Listener, config *tls.Config, timeout time.Duration, log *log.Logger) *Listener {
	l := &Listener{Listener: listener, config: config, timeout: timeout, log: log, results: make(chan result)}
	l.done, l.cancel = context.WithCancel(context.Background())
	go l.accept()
	return l
}

// Accept implements net.Listener. The connections are of type *tls.Conn.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case r := <-l.results:
		if r.err != nil {
			return nil, r.err
		}
		return r.conn, nil
	case <-l.done.Done():
		return nil, net.ErrClosed
	}
}

// Close ends the handshakes too.
func (l *Listener) Close() error {
	l.cancel()
	return l.Listener.Close()
}

func (l *Listener) accept() {
	for {
		conn, err := l.Listener.Accept()
		if err == nil {
			go l.handshake(conn)
			continue
		}
		if !l.deliver(result{err: err}) || !isTemporary(err) {
			return
		}
	}
}

// isTemporary reports whether net/http goes on after an error of a listener, such as one for too many open files.
func isTemporary(err error) bool {
	var temporary net.Error
	return errors.As(err, &temporary) && temporary.Temporary() //nolint:staticcheck // net/http asks for it, too
}

// deliver returns false if the listener was closed.
func (l *Listener) deliver(r result) bool {
	select {
	case l.results <- r:
		return true
	case <-l.done.Done():
		return false
	}
}

func (l *Listener) handshake(conn net.Conn) {
	// As in net/http: what a client sends in a handshake, to a server that does not know it yet, must not be able to end the process.
	defer func() {
		if reason := recover(); reason != nil {
			l.log.Printf("panic in the TLS handshake with %s: %v\n%s", conn.RemoteAddr(), reason, debug.Stack())
			_ = conn.Close()
		}
	}()
	secure := tls.Server(conn, l.config)
	ctx, cancel := context.WithTimeout(l.done, l.timeout)
	defer cancel()
	err := secure.HandshakeContext(ctx)
	if err == nil && l.deliver(result{conn: secure}) {
		return
	}
	var record tls.RecordHeaderError
	if errors.As(err, &record) && record.Conn != nil && isHTTP(record.RecordHeader) {
		_ = record.Conn.SetWriteDeadline(time.Now().Add(l.timeout))
		_, _ = io.WriteString(record.Conn, "HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n")
	}
	if err != nil && l.done.Err() == nil {
		l.log.Printf("TLS handshake error from %s: %v", conn.RemoteAddr(), err)
	}
	_ = conn.Close()
}

// isHTTP reports whether a client has sent a request instead of a record of TLS.
func isHTTP(header [5]byte) bool {
	switch string(header[:]) {
	case "GET /", "HEAD ", "POST ", "PUT /", "OPTIO":
		return true
	}
	return false
}
