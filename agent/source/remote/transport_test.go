package remote

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"

	"github.com/drover-dev/drover/agent/retry"
	"github.com/drover-dev/drover/agent/testenv/testhub"
)

// TestSmallFrames: a report is sent a little at a time, also when it is sent again on another connection, and is complete.
func TestSmallFrames(t *testing.T) {
	for length, size := range map[int]int{1: smallFrame, smallBody: smallFrame, smallBody + 1: largeFrame} {
		report := bytes.Repeat([]byte("r"), length)
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "https://hub.example", bytes.NewReader(report))
		if err != nil {
			t.Fatal(err)
		}
		out := inSmallFrames(r)
		again, err := out.GetBody()
		if err != nil {
			t.Fatal(err)
		}
		for name, body := range map[string]io.Reader{"first": out.Body, "again": again} {
			var sent []byte
			for buffer := make([]byte, 64<<10); ; {
				n, err := body.Read(buffer)
				if n > size {
					t.Errorf("%s: %d bytes of %d are sent at once", name, n, length)
				}
				sent = append(sent, buffer[:n]...)
				if err == io.EOF {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			if !bytes.Equal(sent, report) {
				t.Errorf("%s: %d bytes of %d were sent, or others", name, len(sent), length)
			}
		}
		if out.ContentLength != int64(length) {
			t.Errorf("the length of %d is said to be %d", length, out.ContentLength)
		}
	}
	if get, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://hub.example", nil); inSmallFrames(get) != get {
		t.Error("a request without a body is changed")
	}
}

// TestNoTableOfHeaders: the first request says that the agent repeats no header by its number, so that the hub, which would have a table
// of them for each connection, keeps none.
func TestNoTableOfHeaders(t *testing.T) {
	h := testhub.New(t)
	config := h.TLS.Clone()
	config.NextProtos = []string{"h2"}
	listener, err := tls.Listen("tcp", "127.0.0.1:0", config)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	h.URL = "https://" + listener.Addr().String()
	newSource(t, h)
	conn, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	if _, err := io.ReadFull(conn, make([]byte, len(http2.ClientPreface))); err != nil {
		t.Fatal(err)
	}
	for frames := http2.NewFramer(conn, conn); ; {
		frame, err := frames.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		headers, ok := frame.(*http2.HeadersFrame)
		if !ok {
			continue
		}
		const tableOfOneByte = 0x20 | 1 // RFC 7541, section 6.3
		if block := headers.HeaderBlockFragment(); len(block) == 0 || block[0] != tableOfOneByte {
			t.Errorf("the headers begin with %x", block[:min(len(block), 4)])
		}
		return
	}
}

// slowLink is a hub behind a slow link: the response begins after some time and comes in pieces, one every 20 s. After the last one it
// ends, or nothing comes any more.
type slowLink struct {
	begins time.Duration
	pieces int
	stops  bool
}

func (l slowLink) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := retry.Sleep(r.Context(), l.begins); err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: &slowResponse{slowLink: l, ctx: r.Context()}}, nil
}

type slowResponse struct {
	slowLink
	ctx context.Context
}

func (b *slowResponse) Read(p []byte) (int, error) {
	if b.pieces == 0 && !b.stops {
		return 0, io.EOF
	}
	pause := 20 * time.Second
	if b.pieces == 0 {
		pause = time.Hour
	}
	if err := retry.Sleep(b.ctx, pause); err != nil {
		return 0, err
	}
	b.pieces--
	return copy(p, "piece"), nil
}

func (b *slowResponse) Close() error { return nil }

// TestSlowLink: over a slow link a large Secret may take minutes in both directions. What stops is ended soon.
func TestSlowLink(t *testing.T) {
	for name, test := range map[string]struct {
		link     slowLink
		body     []byte
		want     error
		at, most time.Duration
	}{
		"a large Secret":           {slowLink{pieces: 12}, nil, nil, 4 * time.Minute, 4 * time.Minute},
		"a large report":           {slowLink{begins: 3 * time.Minute}, make([]byte, 1_400_000), nil, 3 * time.Minute, 3 * time.Minute},
		"no response":              {slowLink{begins: time.Hour}, nil, errSilent, requestTimeout, requestTimeout},
		"no response to a report":  {slowLink{begins: time.Hour}, make([]byte, 1_400_000), errSilent, time.Minute, 10 * time.Minute},
		"a response that stops":    {slowLink{pieces: 3, stops: true}, nil, errSilent, time.Minute, 90 * time.Second},
		"a response without bytes": {slowLink{stops: true}, nil, errSilent, requestTimeout, requestTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "https://hub.example", bytes.NewReader(test.body))
				if err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				response, err := (&transport{next: test.link}).RoundTrip(r)
				if err == nil {
					_, err = io.ReadAll(response.Body)
					response.Body.Close()
				}
				if took := time.Since(began); !errors.Is(err, test.want) || took < test.at || took > test.most {
					t.Errorf("got %v after %s, want %v after %s to %s", err, took, test.want, test.at, test.most)
				}
			})
		})
	}
}
