package embedded

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/semaphore"
	"k8s.io/apiserver/pkg/authentication/user"
)

// serve is a client in the process of a handler, which ends with the function.
func serve(t *testing.T, handler http.HandlerFunc) (*http.Client, context.CancelFunc) {
	t.Helper()
	ctx, end := context.WithCancel(t.Context())
	t.Cleanup(end)
	return &http.Client{Transport: &inProcess{handler: handler, running: ctx, caller: &user.DefaultInfo{Name: adminName}}}, end
}

func send(ctx context.Context, t *testing.T, c *http.Client, body io.Reader, header ...string) (*http.Response, error) {
	t.Helper()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://127.0.0.1:6443/api?x=1", body)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	response, err := c.Do(request)
	if err == nil {
		t.Cleanup(func() { _ = response.Body.Close() })
	}
	return response, err
}

func TestInProcess(t *testing.T) {
	c, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.RequestURI != "/api?x=1" || r.Host != "127.0.0.1:6443" || r.ProtoMajor != 2 {
			t.Errorf("the server gets %s of %s, %s", r.RequestURI, r.Host, r.Proto)
		}
		w.Header().Set("X-Answer", "yes")
		w.WriteHeader(http.StatusCreated)
		w.Header().Set("X-Answer", "too late")
		_, _ = io.Copy(w, r.Body)
	})
	// More than is held for a client that does not read.
	want := bytes.Repeat([]byte("0123456789abcdef"), 3*maxBuffered/16)
	response, err := send(t.Context(), t, c, bytes.NewReader(want))
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(response.Body)
	if err != nil || !bytes.Equal(got, want) || response.StatusCode != http.StatusCreated || response.Header.Get("X-Answer") != "yes" {
		t.Errorf("got %s, %v, %d bytes, %v", response.Status, response.Header, len(got), err)
	}
}

// TestInProcessCaller: who calls without credentials is the caller; a token counts for itself.
func TestInProcessCaller(t *testing.T) {
	c, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if answer, ok, _ := (callers{}).AuthenticateRequest(r); ok {
			_, _ = io.WriteString(w, answer.User.GetName())
		}
	})
	for header, want := range map[string]string{"": adminName, "Bearer token": ""} {
		response, err := send(t.Context(), t, c, nil, "Authorization", header)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(response.Body); string(got) != want || err != nil {
			t.Errorf("with Authorization %q: caller %q, %v", header, got, err)
		}
	}
	type callerKey struct{} // of another package
	ctx := context.WithValue(t.Context(), callerKey{}, &user.DefaultInfo{Name: adminName})
	forged, err := http.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok, _ := (callers{}).AuthenticateRequest(forged); ok {
		t.Error("a request that came another way is a caller's")
	}
}

// TestInProcessWatch reads what is flushed while the handler goes on, until one of the two ends it.
func TestInProcessWatch(t *testing.T) {
	for name, end := range map[string]func(cancel, stop context.CancelFunc, body io.Closer){
		"the client leaves":  func(_, _ context.CancelFunc, body io.Closer) { _ = body.Close() },
		"the context ends":   func(cancel, _ context.CancelFunc, _ io.Closer) { cancel() },
		"the server is over": func(_, stop context.CancelFunc, _ io.Closer) { stop() },
	} {
		t.Run(name, func(t *testing.T) {
			ended := make(chan struct{})
			c, stop := serve(t, func(w http.ResponseWriter, r *http.Request) {
				defer close(ended)
				_, _ = io.WriteString(w, "event")
				w.(http.Flusher).Flush()
				<-r.Context().Done()
			})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			response, err := send(ctx, t, c, nil)
			if err != nil {
				t.Fatal(err)
			}
			event := make([]byte, len("event"))
			if _, err := io.ReadFull(response.Body, event); err != nil || string(event) != "event" {
				t.Fatalf("read %q, %v", event, err)
			}
			end(cancel, stop, response.Body)
			<-ended
			if _, err := response.Body.Read(event); err == nil || err == io.EOF {
				t.Errorf("the body ends with %v", err)
			}
		})
	}
}

// TestInProcessErrors: what is broken off is an error for the client, and never an answer.
func TestInProcessErrors(t *testing.T) {
	hang := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	c, stop := serve(t, hang)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := send(ctx, t, c, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("after a timeout: %v", err)
	}
	time.AfterFunc(10*time.Millisecond, stop)
	if _, err := send(t.Context(), t, c, nil); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("when the server ends: %v", err)
	}
	if _, err := send(t.Context(), t, c, nil); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("when the server has ended: %v", err)
	}
	aborts, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Begin") != "" {
			_, _ = io.WriteString(w, "half of it")
			w.(http.Flusher).Flush()
		}
		panic(http.ErrAbortHandler)
	})
	if _, err := send(t.Context(), t, aborts, nil); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("aborted at once: %v", err)
	}
	response, err := send(t.Context(), t, aborts, strings.NewReader("body"), "X-Begin", "yes")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(response.Body); string(got) != "half of it" || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("aborted later: %q, %v", got, err)
	}
}

// TestInProcessWrites: of many requests that change something few are worked on at the same time; others, and reviews, do not wait for
// them.
func TestInProcessWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 3
		running, end := context.WithCancel(t.Context())
		defer end()
		var begun atomic.Int32
		finish := make(chan struct{})
		handler := func(_ http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/write" && r.Method != http.MethodGet {
				begun.Add(1)
				<-finish
			}
		}
		transport := &inProcess{handler: http.HandlerFunc(handler), running: running, caller: &user.DefaultInfo{Name: adminName},
			writes: &writeLimit{hub: semaphore.NewWeighted(most), reports: semaphore.NewWeighted(1)}}
		request := func(ctx context.Context, method, path string) error {
			r, err := http.NewRequestWithContext(ctx, method, "https://127.0.0.1:6443"+path, strings.NewReader("body"))
			if err != nil {
				return err
			}
			response, err := transport.RoundTrip(r)
			if err == nil {
				err = response.Body.Close()
			}
			return err
		}
		ended := make(chan error, 10)
		for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodPut} {
			go func() { ended <- request(t.Context(), method, "/write") }()
		}
		synctest.Wait()
		if got := begun.Load(); got != most {
			t.Errorf("%d requests are worked on, want %d", got, most)
		}
		for _, path := range []string{"/apis/authorization.k8s.io/v1/subjectaccessreviews", "/apis/authentication.k8s.io/v1/tokenreviews"} {
			if err := request(t.Context(), http.MethodPost, path); err != nil {
				t.Errorf("%s: %v", path, err)
			}
		}
		if err := request(t.Context(), http.MethodGet, "/write"); err != nil {
			t.Error(err)
		}
		canceled, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := request(canceled, http.MethodPut, "/write"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("one that has ended while it waited: %v", err)
		}
		close(finish)
		for range 5 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		if got := begun.Load(); got != 5 {
			t.Errorf("%d requests were worked on, want 5", got)
		}
	})
}
