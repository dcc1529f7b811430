package tunnelaccess

import (
	"bytes"
	"compress/gzip"
	"encoding/pem"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/rest"

	"github.com/drover-dev/drover/hub/server/settings"
)

// TestLimitBodies: reading an answer fails where it is longer than the limit. Watches have none.
func TestLimitBodies(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		code, _ := strconv.Atoi(r.URL.Query().Get("code"))
		size, _ := strconv.Atoi(r.URL.Query().Get("size"))
		w.WriteHeader(code)
		_, _ = w.Write(make([]byte, size))
	}))
	defer server.Close()
	for _, test := range []struct {
		query string
		limit int64
		want  int
		fails bool
	}{
		{"?code=200&size=1000", 1000, 1000, false},
		{"?code=200&size=1001", 1000, 1000, true},
		{"?code=200&size=100000", 1000, 1000, true},
		{"?code=200&size=0", 0, 0, false},
		{"?code=200&size=1", 0, 0, true},
		{"?code=403&size=2000000", MaxBody, maxErrorBody, true},
		{"?code=403&size=2000000", 1000, 1000, true},
		{"?code=200&size=2000000", MaxBody, 2000000, false},
		{"?code=200&size=2000&watch=true", 1000, 2000, false},
		{"?code=200&size=2000&watch=false", 1000, 1000, true},
		{"?code=410&size=2000&watch=true", 1000, 1000, true},
	} {
		config := &rest.Config{Host: server.URL}
		LimitBodies(config, test.limit)
		client, err := rest.HTTPClientFor(config)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := client.Get(server.URL + test.query)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if len(got) != test.want || (err != nil) != test.fails || test.fails && !errors.As(err, new(*BodyLimitError)) {
			t.Errorf("%s with a limit of %d: %d bytes, %v", test.query, test.limit, len(got), err)
		}
	}
}

// TestConfigLimits: an answer without an end is not read for longer than the limit, and a compressed one is not decompressed.
func TestConfigLimits(t *testing.T) {
	var packed bytes.Buffer
	writer := gzip.NewWriter(&packed)
	_, _ = writer.Write(make([]byte, 1<<20))
	_ = writer.Close()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if accepted := r.Header.Get("Accept-Encoding"); accepted != "" {
			t.Errorf("the cluster is asked for %s", accepted)
		}
		if r.URL.Path == "/k8s/clusters/c-m-a/packed" {
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write(packed.Bytes())
			return
		}
		for piece := make([]byte, 1<<20); ; {
			if _, err := w.Write(piece); err != nil {
				return
			}
		}
	}))
	defer server.Close()
	access := &Access{
		Settings: settings.Settings{ServerURL: server.URL,
			CACerts: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})},
		Now:   time.Now,
		Issue: func(user.Info, string, time.Duration, string, bool) (string, error) { return "token", nil },
	}
	client, err := rest.HTTPClientFor(access.Config("c-m-a"))
	if err != nil {
		t.Fatal(err)
	}
	read := func(path string) (int64, error) {
		t.Helper()
		answer, err := client.Get(access.Server("c-m-a") + path)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = answer.Body.Close() }()
		return io.Copy(io.Discard, answer.Body)
	}
	if n, err := read("/endless"); n != MaxBody || !errors.As(err, new(*BodyLimitError)) {
		t.Errorf("%d bytes of an endless answer, %v", n, err)
	}
	if n, err := read("/packed"); n != int64(packed.Len()) || err != nil {
		t.Errorf("%d bytes of a compressed answer, %v; want %d", n, err, packed.Len())
	}
}
