package connlimit

import (
	"errors"
	"io"
	"math"
	"net"
	"testing"
	"time"
)

// TestLimitsFor: untrusted connections get half of the files that are not reserved, at most.
func TestLimitsFor(t *testing.T) {
	for files, want := range map[uint64]Limits{
		math.MaxUint64: Defaults,
		1 << 20:        Defaults,
		33792:          Defaults,
		33790:          {Address: 4096, Total: 16383},
		16384:          {Address: 3840, Total: 7680},
		4096:           {Address: 768, Total: 1536},
		1024:           {Address: 192, Total: 384},
		0:              {},
	} {
		if got := LimitsFor(files); got != want {
			t.Errorf("%d open files: %+v, want %+v", files, got, want)
		}
	}
}

// TestReserveFiles: a connection for which only reserved files are left is closed, and reported; others are accepted.
func TestReserveFiles(t *testing.T) {
	for name, tc := range map[string]struct {
		limit    uint64
		accepted bool
	}{
		"enough files":        {1 << 20, true},
		"reserved files only": {4, false}, // 0 to 2 are in use
	} {
		t.Run(name, func(t *testing.T) {
			inner, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			full, accepted := make(chan uint64, 1), make(chan net.Conn, 1)
			l := ReserveFiles(inner, func(limit uint64) { full <- limit })
			t.Cleanup(func() { _ = l.Close() })
			l.(*reserving).limit = tc.limit
			go func() {
				if c, err := l.Accept(); err == nil {
					accepted <- c
				}
			}()
			client, err := net.Dial("tcp", inner.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = client.Close() }()
			select {
			case c := <-accepted:
				_ = c.Close()
				if !tc.accepted {
					t.Error("it is accepted")
				}
			case limit := <-full:
				if tc.accepted || limit != tc.limit {
					t.Errorf("it is refused with the limit %d", limit)
				}
				if _, err := client.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
					t.Errorf("the client is told %v", err)
				}
			case <-time.After(time.Minute):
				t.Fatal("nothing happens")
			}
		})
	}
}
