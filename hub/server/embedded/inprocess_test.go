package embedded

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

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
