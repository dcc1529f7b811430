package tunnel

import (
	"errors"
	"net"
	"os"
	"testing"
	"time"
)

func TestIdleTimeout(t *testing.T) {
	for _, test := range []struct {
		name     string
		deadline time.Time
	}{
		{name: "no deadline is set"},
		{name: "a later one is set", deadline: time.Now().Add(time.Hour)},
	} {
		t.Run(test.name, func(t *testing.T) {
			near, far := net.Pipe()
			defer near.Close()
			defer far.Close()
			conn := &timeoutConn{Conn: near, idleTimeout: 50 * time.Millisecond}
			if err := conn.SetDeadline(test.deadline); err != nil {
				t.Fatal(err)
			}
			for name, do := range map[string]func([]byte) (int, error){"read": conn.Read, "write": conn.Write} {
				start := time.Now()
				if _, err := do(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(start) > time.Minute {
					t.Errorf("%s ends with %v after %s", name, err, time.Since(start))
				}
			}
		})
	}
}

func TestEarlierDeadline(t *testing.T) {
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	conn := &timeoutConn{Conn: near, idleTimeout: time.Hour}
	time.AfterFunc(20*time.Millisecond, func() { _ = conn.SetDeadline(time.Now()) })
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("read ends with %v", err)
	}
	if _, err := conn.Write(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("write ends with %v", err)
	}
}
