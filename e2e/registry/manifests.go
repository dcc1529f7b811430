package registry

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// manifestStore writes down each manifest that is pushed and pushes all of them again when the registry starts: the library
// keeps manifests in memory only.
type manifestStore struct {
	dir  string
	next http.Handler

	mu    sync.Mutex
	count int
}

// kept is one pushed manifest. Files are numbered in the order of the pushes, since an index comes after its images.
type kept struct {
	Path        string `json:"path"`
	ContentType string `json:"contentType"`
	Body        []byte `json:"body"`
}

// maxManifest is the size that the distribution specification lets registries refuse manifests above.
const maxManifest = 4 << 20

func (k *manifestStore) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPut || !strings.Contains(r.URL.Path, "/manifests/") {
		k.next.ServeHTTP(w, r)
		return
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxManifest+1))
	if err != nil || len(body) > maxManifest {
		http.Error(w, "the manifest is not readable, or larger than 4 MiB", http.StatusRequestEntityTooLarge)
		return
	}
	m := kept{Path: r.URL.Path, ContentType: r.Header.Get("Content-Type"), Body: body}
	k.mu.Lock()
	defer k.mu.Unlock()
	status := &statusWriter{ResponseWriter: w, status: http.StatusOK}
	r.Body = io.NopCloser(bytes.NewReader(body))
	k.next.ServeHTTP(status, r)
	if status.status == http.StatusCreated {
		if err := k.keep(m); err != nil {
			// The answer is on its way; what is lost is only lost at the next start.
			fmt.Fprintln(os.Stderr, "Manifest could not be kept:", err)
		}
	}
}

func (k *manifestStore) keep(m kept) error {
	raw, err := json.Marshal(m)
	if err != nil {
		return err
	}
	file := filepath.Join(k.dir, fmt.Sprintf("%08d.json", k.count))
	if err := os.WriteFile(file+".tmp", raw, 0o644); err != nil {
		return err
	}
	k.count++
	return os.Rename(file+".tmp", file)
}

// restore pushes everything that was kept.
func (k *manifestStore) restore() error {
	for {
		raw, err := os.ReadFile(filepath.Join(k.dir, fmt.Sprintf("%08d.json", k.count)))
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("restoring the registry: %w", err)
		}
		var m kept
		if err := json.Unmarshal(raw, &m); err != nil {
			return fmt.Errorf("restoring the registry: manifest %d: %w", k.count, err)
		}
		r := httptest.NewRequest(http.MethodPut, m.Path, bytes.NewReader(m.Body))
		r.Header.Set("Content-Type", m.ContentType)
		w := httptest.NewRecorder()
		k.next.ServeHTTP(w, r)
		if w.Code != http.StatusCreated {
			return fmt.Errorf("restoring the registry: %s: %s", m.Path, strings.TrimSpace(w.Body.String()))
		}
		k.count++
	}
}

type statusWriter struct {
	http.ResponseWriter
	status int
}

func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}
