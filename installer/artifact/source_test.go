package artifact

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestOpenRefuses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "k3s")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for place, want := range map[string]string{
		"":                     "no directory or URL given",
		"http://example.com/a": "must be an https URL",
		"ftp://example.com/a":  "must be a directory or an https URL",
		"/does/not/exist":      "no such file or directory",
		file:                   "is a file: name its directory",
	} {
		if _, err := Open(place, Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Open(%q) gives %v, want %q", place, err, want)
		}
	}
}

func TestFolder(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "k3s"), []byte("abc"), 0o600); err != nil {
		t.Fatal(err)
	}
	source, err := Open(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	file, err := source.Fetch(context.Background(), "k3s")
	if err != nil || file.Size != 3 || file.Path != filepath.Join(dir, "k3s") {
		t.Errorf("Fetch gives %+v, %v", file, err)
	}
	if _, err = source.Fetch(context.Background(), "other"); !errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), "other") {
		t.Errorf("a missing file gives %v", err)
	}
}

func TestDownload(t *testing.T) {
	requests := map[string]int{}
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests[r.URL.Path]++
		switch {
		case r.URL.Path == "/v1+k3s1/k3s":
			_, _ = w.Write([]byte("the program"))
		case r.URL.Path == "/v1+k3s1/flaky" && requests[r.URL.Path] < 3:
			w.Header().Set("Content-Length", "100") // and less arrives
			_, _ = w.Write([]byte("half"))
		case r.URL.Path == "/v1+k3s1/flaky":
			_, _ = w.Write([]byte("whole"))
		case r.URL.Path == "/v1+k3s1/broken":
			http.Error(w, "", http.StatusBadGateway)
		case r.URL.Path == "/v1+k3s1/secret":
			http.Error(w, "", http.StatusForbidden)
		default:
			http.NotFound(w, r)
		}
	}))
	defer server.Close()
	dir := t.TempDir()
	source, err := Open(server.URL+"/v1+k3s1", Options{TempDir: dir, Client: server.Client()})
	if err != nil {
		t.Fatal(err)
	}
	source.(*httpSource).baseDelay = time.Millisecond

	for _, test := range []struct {
		name, content, err string
		requests           int
	}{
		{name: "k3s", content: "the program", requests: 1},
		{name: "flaky", content: "whole", requests: 3},
		{name: "broken", err: "unexpected status 502 Bad Gateway", requests: attempts},
		{name: "secret", err: "unexpected status 403 Forbidden", requests: 1},
		{name: "missing", err: "not found", requests: 1},
	} {
		for range 2 { // the second time from what is there
			file, err := source.Fetch(context.Background(), test.name)
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) || !strings.Contains(err.Error(), test.name) {
					t.Errorf("%s gives %v, want %q", test.name, err, test.err)
				}
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", test.name, err)
			}
			if content, _ := os.ReadFile(file.Path); string(content) != test.content {
				t.Errorf("%s holds %q, want %q", test.name, content, test.content)
			}
		}
		if got := requests["/v1+k3s1/"+test.name]; got != test.requests {
			t.Errorf("%s was asked for %d times, want %d", test.name, got, test.requests)
		}
	}
	if left, _ := os.ReadDir(dir); len(left) != 2 {
		t.Errorf("%d files are left in the temporary folder, want those of the two downloads", len(left))
	}
}

func TestDownloadEndsWithItsContext(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte("half"))
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
	defer server.Close()
	source, err := Open(server.URL, Options{TempDir: t.TempDir(), Client: server.Client()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if _, err := source.Fetch(ctx, "k3s"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Fetch gives %v", err)
	}
}

func TestOnlyHTTPSIsFollowed(t *testing.T) {
	req := httptest.NewRequest(http.MethodGet, "http://example.com/k3s", nil)
	if err := requireHTTPS(req, nil); err == nil || !strings.Contains(err.Error(), "not https") {
		t.Errorf("a redirect to http gives %v", err)
	}
}

func TestSplit(t *testing.T) {
	for place, want := range map[string][2]string{
		"install.sh": {".", "install.sh"}, "/install.sh": {"/", "install.sh"}, "a/b/install.sh": {"a/b", "install.sh"},
		"https://example.com/x/install.sh": {"https://example.com/x", "install.sh"},
	} {
		if dir, name := Split(place); dir != want[0] || name != want[1] {
			t.Errorf("Split(%q) = %q, %q", place, dir, name)
		}
	}
}
