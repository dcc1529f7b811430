package gateway

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/drover-dev/drover/hub/gateway/registration"
	"github.com/drover-dev/drover/hub/util/response"
)

// TestUnreadRefusalOfHeaders: a request whose headers are too long never comes to a handler, and ends, too, when the client does not read
// the answer. What a handler does may take longer.
func TestUnreadRefusalOfHeaders(t *testing.T) {
	s := newTestServer(t, "")
	const limit = 300 * time.Millisecond
	s.opts.Mounts = map[string]http.Handler{"/slow": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(2 * limit)
		response.Write(w, http.StatusOK, "text/plain", []byte("done"))
	})}
	s.handler = s.newHandler()
	server := s.httpServer()
	if server.WriteTimeout != answerTimeout {
		t.Fatalf("answers of net/http may take %s", server.WriteTimeout)
	}
	server.WriteTimeout = limit
	address := serve(t, s, server)

	conn, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}) //nolint:gosec
	must(t, err)
	defer func() { _ = conn.Close() }()
	must(t, conn.SetDeadline(time.Now().Add(time.Minute)))
	_, err = io.WriteString(conn, http2.ClientPreface)
	must(t, err)
	frames := http2.NewFramer(conn, conn)
	must(t, frames.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}))
	var block bytes.Buffer
	headers := hpack.NewEncoder(&block)
	fields := [][2]string{{":method", http.MethodGet}, {":scheme", "https"}, {":authority", address}, {":path", "/healthz"}}
	for range 1 + maxHeaderBytes/3000 { // from the second on, each is a byte
		fields = append(fields, [2]string{"cookie", strings.Repeat("x", 3000)})
	}
	for _, field := range fields {
		must(t, headers.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]}))
	}
	must(t, frames.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndStream: true, EndHeaders: true}))
	for {
		frame, err := frames.ReadFrame()
		if err != nil {
			t.Fatal("the request does not end: ", err)
		}
		if data, is := frame.(*http2.DataFrame); is && len(data.Data()) > 0 {
			t.Fatalf("the answer was sent: %q", data.Data())
		}
		if _, is := frame.(*http2.RSTStreamFrame); is {
			break
		}
	}

	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true} //nolint:gosec
	defer transport.CloseIdleConnections()
	answer, err := (&http.Client{Transport: transport}).Get("https://" + address + "/slow")
	must(t, err)
	body, err := io.ReadAll(answer.Body)
	if err := errors.Join(err, answer.Body.Close()); err != nil || string(body) != "done" {
		t.Errorf("a handler that takes longer answers %q, %v", body, err)
	}
}

// TestRefusedCallersAreLogged: an operator sees why a machine does not register, whoever sends the request cannot fill the log, and no
// credential is in it.
func TestRefusedCallersAreLogged(t *testing.T) {
	s := newTestServer(t, "")
	var lines []string
	s.log = funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{})
	get(s, "/assets/none") // 404 says nothing of a caller
	if len(lines) > 0 {
		t.Errorf("logged %q", lines)
	}
	get(s, "/v3/connect/agent")
	s.writeText(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, registration.ImportPath+"secret-token_c-m-a.yaml", nil),
		response.Errorf(http.StatusUnauthorized, "the registration token has expired"))
	if len(lines) != 2 || !strings.Contains(lines[0], `"path"="/v3/connect/agent"`) || !strings.Contains(lines[0], `"code"=401`) ||
		!strings.Contains(lines[0], "the registration token is missing") || strings.Contains(lines[1], "secret-token") {
		t.Errorf("logged %q", lines)
	}
	for range 100 {
		get(s, "/v3/connect/agent")
	}
	if len(lines) > 10 {
		t.Errorf("%d lines for one address", len(lines))
	}
	lines = nil
	for i := range 1000 {
		r := httptest.NewRequest(http.MethodGet, "/v3/connect/agent", nil)
		r.RemoteAddr = fmt.Sprintf("10.1.%d.%d:1", i/250, i%250)
		s.handler.ServeHTTP(httptest.NewRecorder(), r)
	}
	if len(lines) > 100 {
		t.Errorf("%d lines for a thousand addresses", len(lines))
	}
}
