package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/gorilla/websocket"
)

func TestHeader(t *testing.T) {
	for name, c := range map[string]struct {
		number int64
		header Header
		want   []byte
	}{
		"data":    {1, Header{2, Data}, []byte{2, 4, 2, 0xb0, 0xea, 0x01}},
		"connect": {1, Header{2, Connect}, []byte{2, 4, 4, 0xb0, 0xea, 0x01}},
		"error":   {1, Header{2, Error}, []byte{2, 4, 6}},
		"pause":   {-1, Header{-2, Pause}, []byte{1, 3, 12}},
		"sync":    {64, Header{0, SyncConnections}, []byte{0x80, 1, 0, 16}},
	} {
		t.Run(name, func(t *testing.T) {
			got := AppendHeader(nil, c.number, c.header)
			if !bytes.Equal(got, c.want) {
				t.Fatalf("encoded as %v, agents expect %v", got, c.want)
			}
			for cut := range got {
				if _, _, err := ParseHeader(got[:cut]); !errors.Is(err, ErrShort) {
					t.Errorf("the first %d bytes: %v, want ErrShort", cut, err)
				}
			}
			header, n, err := ParseHeader(append(got, "body"...))
			if header != c.header || n != len(got) || err != nil {
				t.Errorf("decoded as %v of %d bytes, %v", header, n, err)
			}
		})
	}
}

func TestHeaderTooLong(t *testing.T) {
	if _, _, err := ParseHeader(bytes.Repeat([]byte{0xff}, MaxHeader)); err == nil || errors.Is(err, ErrShort) {
		t.Errorf("a number that never ends: %v", err)
	}
}

func TestTarget(t *testing.T) {
	for name, c := range map[string]struct{ network, address, want, problem string }{
		"tcp":           {"tcp", "10.0.0.1:6443", "tcp/10.0.0.1:6443", ""},
		"own":           {"drover", "kube-api", "drover/kube-api", ""},
		"no network":    {"", "10.0.0.1:6443", "", "must both be given"},
		"no address":    {"tcp", "", "", "must both be given"},
		"longest":       {"tcp", strings.Repeat("a", 262), "tcp/" + strings.Repeat("a", 262), ""},
		"one more":      {"tcp", strings.Repeat("a", 263), "", "it takes 262"},
		"slash in path": {"unix", "/run/x", "unix//run/x", ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Target(c.network, c.address)
			if got != c.want || (err == nil) != (c.problem == "") || err != nil && !strings.Contains(err.Error(), c.problem) {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
}

func TestParseStreams(t *testing.T) {
	body := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, 7), math.MaxUint64)
	got, err := ParseStreams(body)
	if diff := cmp.Diff([]int64{7, -1}, got); diff != "" || err != nil {
		t.Errorf("%v %s", err, diff)
	}
	if _, err := ParseStreams(body[:9]); err == nil {
		t.Error("half a number is a list")
	}
}

// TestFrames has the websocket library read what is put together here, as a client what a server sends, and the other way.
func TestFrames(t *testing.T) {
	for _, masked := range []bool{false, true} {
		for _, length := range []int{0, 1, 125 - 6, 126, 127, maskBlock - 6, maskBlock + 1, 1 << 16, 1<<16 + 1, 1 << 20} {
			body := bytes.Repeat([]byte("abcdefg"), length/7+1)[:length]
			frame := AppendMessage(Frames{Masked: masked}, []byte("before"), 1, Header{2, Data}, body)[len("before"):]
			kind, payload := readFrame(t, frame, masked)
			header, n, err := ParseHeader(payload)
			if kind != websocket.BinaryMessage || header != (Header{2, Data}) || err != nil || !bytes.Equal(payload[n:], body) {
				t.Errorf("masked %t, body of %d bytes: kind %d, %v, %d bytes, %v", masked, length, kind, header, len(payload)-n, err)
			}
			if length > 100 && bytes.Contains(frame, body[:50]) == masked {
				t.Errorf("body of %d bytes: it is masked: %t", length, !masked)
			}
		}
	}
}

// TestMasksDiffer: each frame has another mask.
func TestMasksDiffer(t *testing.T) {
	masks := map[string]bool{}
	for range 100 {
		masks[string(Frames{Masked: true}.Append(nil, websocket.PingMessage, nil)[2:])] = true
	}
	if len(masks) < 99 {
		t.Errorf("100 frames have %d masks", len(masks))
	}
}

// readFrame writes a frame to a websocket and returns what the library reads at the other end, the server's if the frame is masked.
func readFrame(t *testing.T, frame []byte, masked bool) (kind int, payload []byte) {
	t.Helper()
	var readErr error
	done := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(done)
		ws, err := (&websocket.Upgrader{}).Upgrade(w, r, nil)
		if err != nil {
			readErr = err
			return
		}
		defer ws.Close()
		if masked {
			kind, payload, readErr = ws.ReadMessage()
			return
		}
		_, _ = ws.NetConn().Write(frame)
	}))
	defer server.Close()
	ws, _, err := websocket.DefaultDialer.Dial("ws"+strings.TrimPrefix(server.URL, "http"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer ws.Close()
	if masked {
		_, _ = ws.NetConn().Write(frame)
		<-done
	} else {
		kind, payload, readErr = ws.ReadMessage()
	}
	if readErr != nil {
		t.Fatal(readErr)
	}
	return kind, payload
}

// FuzzParseHeader checks that whatever is accepted means the same when it is written again.
func FuzzParseHeader(f *testing.F) {
	f.Add(AppendHeader(nil, 1, Header{2, Data}))
	f.Add(AppendHeader(nil, math.MinInt64, Header{math.MaxInt64, Connect}))
	f.Add(AppendHeader(nil, 0, Header{0, SyncConnections}))
	f.Fuzz(func(t *testing.T, b []byte) {
		header, n, err := ParseHeader(b)
		if err != nil {
			return
		}
		if n > len(b) || n > MaxHeader {
			t.Fatalf("header of %d bytes in a message of %d", n, len(b))
		}
		again, _, err := ParseHeader(AppendHeader(nil, 5, header))
		if err != nil || again != header {
			t.Errorf("%v comes back as %v, %v", header, again, err)
		}
	})
}

// FuzzParseStreams checks that a list has one number for each 8 bytes.
func FuzzParseStreams(f *testing.F) {
	f.Add([]byte("12345678"))
	f.Fuzz(func(t *testing.T, b []byte) {
		streams, err := ParseStreams(b)
		if (err == nil) != (len(b)%8 == 0) || err == nil && len(streams) != len(b)/8 {
			t.Errorf("%d bytes: %d streams, %v", len(b), len(streams), err)
		}
	})
}
