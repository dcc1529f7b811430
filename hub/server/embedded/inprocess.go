package embedded

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strconv"
	"sync"
	"syscall"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/request/union"
	"k8s.io/apiserver/pkg/authentication/user"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/rest"
	controlplane "k8s.io/kubernetes/pkg/controlplane/apiserver/samples/generic/server"
)

// Clients in this process call the API server's handler, with all of its filters, instead of sending requests over the loopback network:
// TLS, the verification of the client's certificate in each request, and HTTP/2 on both sides took a tenth of the processor.

// maxBuffered is how much of a response is held for a client that has not read it; a handler that writes more waits.
const maxBuffered = 256 << 10

// callerKey is of the context of requests that clients in this process make. No other request can have it.
type callerKey struct{}

// inProcess is a transport whose requests a handler of the same process answers. Requests without a token are the caller's.
type inProcess struct {
	handler http.Handler
	caller  user.Info
	// running ends with the server, and with it all requests.
	running context.Context
	// writes bounds the requests that change something; nil bounds nothing.
	writes *writeLimit
}

// errEnded is the answer to requests when the server has ended, as it is when nobody listens.
var errEnded = fmt.Errorf("the embedded API server has ended: %w", syscall.ECONNREFUSED)

// RoundTrip implements http.RoundTripper.
func (t *inProcess) RoundTrip(request *http.Request) (*http.Response, error) {
	leave, err := t.writes.enter(request)
	if err != nil {
		return nil, err
	}
	// Values of the caller's context are none of the server's business.
	base := t.running
	if request.Header.Get("Authorization") == "" { // else it is who that says
		base = context.WithValue(base, callerKey{}, t.caller)
	}
	ctx, cancel := context.WithCancel(base)
	stop := context.AfterFunc(request.Context(), cancel)
	w := &response{header: http.Header{}, started: make(chan struct{}), cancel: func() { stop(); cancel() }}
	w.changed.L = &w.mu
	breakOff := func() { w.end(cmp.Or(request.Context().Err(), io.ErrUnexpectedEOF)) }
	stopWaiting := context.AfterFunc(ctx, breakOff)
	go func() {
		defer leave()
		t.serve(w, toServer(ctx, request))
		breakOff() // unless it has ended
		stopWaiting()
		w.cancel()
	}()
	<-w.started
	answer, err := w.answer(request)
	if err != nil && t.running.Err() != nil && request.Context().Err() == nil {
		return nil, errEnded
	}
	return answer, err
}

// toServer is a request as a server gets it.
func toServer(ctx context.Context, request *http.Request) *http.Request {
	r := request.Clone(ctx)
	r.RequestURI, r.RemoteAddr = request.URL.RequestURI(), "127.0.0.1:0"
	r.Proto, r.ProtoMajor, r.ProtoMinor = "HTTP/2.0", 2, 0
	if r.Host == "" {
		r.Host = request.URL.Host
	}
	if r.Body == nil {
		r.Body = http.NoBody
	}
	return r
}

// serve calls the handler, and ends the response unless it is to be broken off: the request has ended before, or the handler has panicked,
// as http.ErrAbortHandler asks for. The API server has logged why.
func (t *inProcess) serve(w *response, request *http.Request) {
	defer func() {
		_ = recover()
		_ = request.Body.Close()
	}()
	t.handler.ServeHTTP(w, request)
	if request.Context().Err() == nil {
		w.WriteHeader(http.StatusOK)
		w.end(io.EOF)
	}
}

// response is both ends of the answer to one request: the handler writes it, the client reads its body.
type response struct {
	header  http.Header
	started chan struct{}
	// cancel ends the request.
	cancel func()

	mu      sync.Mutex
	changed sync.Cond
	// code is 0, and sent nil, until the handler has set them or has written something.
	code int
	sent http.Header
	// body is what the client has not read yet, err what follows it: io.EOF at its end.
	body bytes.Buffer
	err  error
	// begun is set when started is closed.
	begun bool
}

// answer is the response for the client, once it has begun, or why there is none.
func (w *response) answer(request *http.Request) (*http.Response, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.code == 0 {
		return nil, w.err
	}
	length := int64(-1)
	if n, err := strconv.ParseInt(w.sent.Get("Content-Length"), 10, 64); err == nil {
		length = n
	}
	return &http.Response{
		Status: strconv.Itoa(w.code) + " " + http.StatusText(w.code), StatusCode: w.code, Proto: "HTTP/2.0", ProtoMajor: 2,
		Header: w.sent, Body: w, ContentLength: length, Request: request,
	}, nil
}

// Header implements http.ResponseWriter.
func (w *response) Header() http.Header { return w.header }

// WriteHeader implements http.ResponseWriter.
func (w *response) WriteHeader(code int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writeHeader(code)
}

func (w *response) writeHeader(code int) {
	if w.code == 0 && code >= http.StatusOK {
		w.code, w.sent = code, w.header.Clone()
	}
}

// Write implements http.ResponseWriter.
func (w *response) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writeHeader(http.StatusOK)
	for w.body.Len() >= maxBuffered && w.err == nil {
		w.start()
		w.changed.Wait()
	}
	if w.err != nil {
		return 0, w.err
	}
	n, err := w.body.Write(p)
	w.changed.Broadcast()
	return n, err
}

// Flush implements http.Flusher.
func (w *response) Flush() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writeHeader(http.StatusOK)
	w.start()
}

// start lets the client have the response. It is called with mu held.
func (w *response) start() {
	if !w.begun {
		w.begun = true
		close(w.started)
	}
}

// CloseNotify implements http.CloseNotifier: the API server's wrappers pass on Flush only of a writer that has this, too.
func (w *response) CloseNotify() <-chan bool { return nil }

// end ends the body, the first time that it is called.
func (w *response) end(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = err
		w.start()
		w.changed.Broadcast()
	}
}

// Read implements io.Reader of the body.
func (w *response) Read(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.body.Len() == 0 && w.err == nil {
		w.changed.Wait()
	}
	if w.body.Len() == 0 {
		return 0, w.err
	}
	n, _ := w.body.Read(p)
	w.changed.Broadcast()
	return n, nil
}

// Close implements io.Closer of the body.
func (w *response) Close() error {
	w.end(http.ErrBodyReadAfterClose)
	w.cancel()
	return nil
}

// callers authenticates the requests of clients in this process.
type callers struct{}

// AuthenticateRequest implements authenticator.Request.
func (callers) AuthenticateRequest(r *http.Request) (*authenticator.Response, bool, error) {
	caller, ok := r.Context().Value(callerKey{}).(user.Info)
	if !ok {
		return nil, false, nil
	}
	return &authenticator.Response{User: caller}, true, nil
}

// ofCaller reports whether a request is that of a client in this process, and not one for a user that it impersonates.
func ofCaller(ctx context.Context) bool {
	caller, here := ctx.Value(callerKey{}).(user.Info)
	of, known := genericrequest.UserFrom(ctx)
	return here && known && of.GetName() == caller.GetName()
}

// inProcessConfig is a configuration like this one whose requests the server's handler answers.
func (s *apiServer) inProcessConfig(running context.Context, config *rest.Config) *rest.Config {
	t := &inProcess{handler: s.handler, running: running, writes: newWriteLimit(runtime.GOMAXPROCS(0)),
		caller: &user.DefaultInfo{Name: adminName, Groups: []string{user.SystemPrivilegedGroup, user.AllAuthenticated}}}
	config = rest.CopyConfig(config)
	config.Wrap(func(http.RoundTripper) http.RoundTripper { return t })
	return config
}

// withCallers authenticates clients in this process, and leaves all others to what is configured.
func withCallers(config *controlplane.Config) {
	authentication := &config.Aggregator.GenericConfig.Authentication
	authentication.Authenticator = union.New(callers{}, authentication.Authenticator)
}
