package programs

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

const program = "\x7fELF the program"

func tarball(t *testing.T, name string) []byte {
	t.Helper()
	var out bytes.Buffer
	zipped := gzip.NewWriter(&out)
	archive := tar.NewWriter(zipped)
	for _, file := range []string{"README", name} {
		err := archive.WriteHeader(&tar.Header{Name: file, Mode: 0o755, Size: int64(len(program)), Typeflag: tar.TypeReg})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := archive.Write([]byte(program)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(archive.Close(), zipped.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func zipFile(t *testing.T) []byte {
	t.Helper()
	var out bytes.Buffer
	archive := zip.NewWriter(&out)
	w, err := archive.Create("../../docker-machine-driver-lab")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte(program)); err != nil {
		t.Fatal(err)
	}
	if err := archive.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestDownload(t *testing.T) {
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	files := map[string][]byte{
		"/driver": []byte(program), "/driver.tar.gz": tarball(t, "./docker-machine-driver-lab"), "/driver.zip": zipFile(t),
		"/none.tar.gz": tarball(t, "other"), "/script": []byte("#!/bin/sh\n"), "/torn.tar.gz": tarball(t, "docker-machine-driver-lab")[:40],
	}
	requests := 0
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests++
		if r.URL.Path == "/redirect" {
			http.Redirect(w, r, plain.URL, http.StatusFound)
			return
		}
		content, ok := files[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write(content) // the client sees what is missing
	}))
	defer server.Close()
	for path, want := range map[string]string{
		"/driver": "", "/driver.tar.gz": "", "/driver.zip": "", "/none.tar.gz": "no file whose name", "/script": "no program for Linux",
		"/torn.tar.gz": "not readable", "/missing": "404", "/redirect": "no https URL",
	} {
		store := &Store{Dir: t.TempDir(), Client: server.Client()}
		sum := sha512.Sum512(files[path])
		got, err := store.Download(t.Context(), server.URL+path, strings.ToUpper(hex.EncodeToString(sum[:])))
		if want != "" {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got %v, want %q", path, err, want)
			}
		} else if content, readErr := os.ReadFile(got.Path); err != nil || readErr != nil || string(content) != program {
			t.Errorf("%s: got %q, %v, %v", path, content, err, readErr)
		}
		left, err := filepath.Glob(filepath.Join(store.Dir, "cache", "download-*"))
		if err != nil || len(left) > 0 {
			t.Errorf("%s: left behind %v, %v", path, left, err)
		}
	}

	store := &Store{Dir: t.TempDir(), Client: server.Client()}
	var final *FaultError
	if _, err := store.Download(t.Context(), server.URL+"/driver", strings.Repeat("0", 64)); !errors.As(err, &final) ||
		!strings.Contains(err.Error(), "not spec.checksum") {
		t.Errorf("a wrong checksum: %v", err)
	}
	sum := sha256.Sum256([]byte(program))
	for range 2 {
		requests = 0
		got, err := store.Download(t.Context(), server.URL+"/driver", hex.EncodeToString(sum[:]))
		if err != nil || got.Checksum != hex.EncodeToString(sum[:]) {
			t.Errorf("got %+v, %v", got, err)
		}
	}
	if requests != 0 {
		t.Error("downloaded twice")
	}
	// After a power cut, the file may be there without its content.
	got, err := store.Download(t.Context(), server.URL+"/driver", hex.EncodeToString(sum[:]))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(got.Path, 0); err != nil {
		t.Fatal(err)
	}
	got, err = store.Download(t.Context(), server.URL+"/driver", hex.EncodeToString(sum[:]))
	if err != nil || got.Checksum != hex.EncodeToString(sum[:]) || requests != 1 {
		t.Errorf("got %+v, %v after %d requests", got, err, requests)
	}
}

// TestIncompleteDownloads: what a hub has left that was killed is removed by the next one, and programs are not.
func TestIncompleteDownloads(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "cache"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"docker-machine-driver-lab", "cache/download-1", "cache/download-1.program", "cache/0123456789abcdef"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(program), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	NewStore("") // it has no directory, and that of the process is none
	if _, err := os.Stat("cache/download-1"); err != nil {
		t.Error(err)
	}
	store := NewStore(dir)
	if _, err := store.Builtin("lab"); err != nil {
		t.Error(err)
	}
	left, err := os.ReadDir(filepath.Join(dir, "cache"))
	if err != nil || len(left) != 1 || left[0].Name() != "0123456789abcdef" {
		t.Errorf("left %v, %v", left, err)
	}
}

func TestBuiltin(t *testing.T) {
	store := &Store{Dir: t.TempDir()}
	if _, err := store.Builtin("lab"); err == nil || !strings.Contains(err.Error(), "docker-machine-driver-lab nor rancher-machine") {
		t.Errorf("got %v", err)
	}
	for _, name := range []string{"rancher-machine", "docker-machine-driver-lab"} {
		if err := os.WriteFile(filepath.Join(store.Dir, name), []byte(program), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := store.Builtin("lab"); err != nil || filepath.Base(got.Path) != name {
			t.Errorf("got %+v, %v", got, err)
		}
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestDownloadsAtOnce: what many machines need at once is downloaded once.
func TestDownloadsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sum := sha256.Sum256([]byte(program))
		var requests atomic.Int32
		answer := make(chan struct{})
		store := NewStore(t.TempDir())
		store.Client = &http.Client{Transport: roundTrip(func(*http.Request) (*http.Response, error) {
			requests.Add(1)
			<-answer
			return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(program))}, nil
		})}
		download := func(ctx context.Context) error {
			_, err := store.Download(ctx, "https://127.0.0.1/driver", hex.EncodeToString(sum[:]))
			return err
		}
		const machines = 8
		errs := make(chan error, machines)
		for range machines {
			go func() { errs <- download(t.Context()) }()
		}
		synctest.Wait()
		ended, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := download(ended); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("waiting with a context that ends: %v", err)
		}
		close(answer)
		for range machines {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
		if n := requests.Load(); n != 1 {
			t.Errorf("%d downloads, want 1", n)
		}
	})
}

// TestCorrectedURL: a NodeDriver whose URL was corrected, and whose checksum is the same, does not wait for the previous URL, and its
// failure, of which a retry would be useless, is not that of the new one.
func TestCorrectedURL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sum := sha256.Sum256([]byte(program))
		answer := make(chan struct{})
		store := NewStore(t.TempDir())
		store.Client = &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			content := program
			if r.URL.Path == "/wrong" {
				<-answer
				content = "an error page"
			}
			return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(content))}, nil
		})}
		download := func(path string) error {
			_, err := store.Download(t.Context(), "https://127.0.0.1"+path, hex.EncodeToString(sum[:]))
			return err
		}
		wrong, right := make(chan error, 1), make(chan error, 1)
		go func() { wrong <- download("/wrong") }()
		synctest.Wait()
		go func() { right <- download("/driver") }()
		synctest.Wait()
		if len(right) != 1 {
			t.Error("it waits for the previous URL")
		}
		close(answer)
		if err := <-right; err != nil {
			t.Errorf("the corrected URL: %v", err)
		}
		if err := <-wrong; err == nil || !strings.Contains(err.Error(), "not spec.checksum") {
			t.Errorf("the previous URL: %v", err)
		}
	})
}
