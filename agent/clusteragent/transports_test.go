package clusteragent

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// A Pod behind the API may switch to a protocol that nobody has asked for. The connection to the API is closed.
func TestSwitchToAnotherProtocol(t *testing.T) {
	ended := make(chan struct{})
	a := serveAPI(t, kubernetes(t, func(w http.ResponseWriter, _ *http.Request) {
		conn, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: other\r\n\r\n")
		_, _ = io.Copy(io.Discard, buffered)
		close(ended)
	}))
	response, err := client(t, a).Do(request(t, "/api/v1/namespaces/x/pods/y/proxy/", http.Header{
		"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Impersonate-User": {"anna"}}))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if body, err := io.ReadAll(response.Body); err != nil || response.StatusCode != 502 || response.Header.Get("Retry-After") != "" ||
		!strings.Contains(string(body), "the response of the Kubernetes API is invalid: it switches to protocol") {
		t.Errorf("%d %s, %v", response.StatusCode, body, err)
	}
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Error("the connection to the API is kept")
	}
}

// What a user does not read of a response stays with the API, but for a small part.
func TestUnreadResponse(t *testing.T) {
	const most = 2 << 20
	var sent atomic.Int64
	a := serveAPI(t, kubernetes(t, func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 2 {
			t.Errorf("the request is %s", r.Proto)
		}
		for chunk := make([]byte, 16<<10); ; {
			n, err := w.Write(chunk)
			if sent.Add(int64(n)); err != nil {
				return
			}
		}
	}))
	response, err := client(t, a).Do(request(t, "/api/v1/namespaces/x/pods/y/log?follow=true", http.Header{"Impersonate-User": {"anna"}}))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	for last := int64(-1); last != sent.Load() && last < most; time.Sleep(500 * time.Millisecond) {
		last = sent.Load()
	}
	if got := sent.Load(); got >= most {
		t.Errorf("%d bytes were received that nobody reads", got)
	}
}
